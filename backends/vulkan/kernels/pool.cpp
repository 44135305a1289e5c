// max_pool, avg_pool, their adaptive forms and gradients, over 1 to 3 spatial axes (pool.comp). The
// gradient of max_pool has the index of each element and uses scatter.comp.
#include <algorithm>

#include "backends/vulkan/kernels/grid.hpp"
#include "backends/vulkan/kernels/scatter.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backplane/shell/sampling.hpp"

namespace bp::vulkan {
namespace {

enum PoolOp : uint32_t {
  kPoolMax = 0,
  kPoolAverage = 1,
  kPoolAverageBackward = 2,
  kPoolAdaptive = 3,
  kPoolAdaptiveBackward = 4,
  kPoolAdaptiveMax = 5,
};

struct PoolRecord {
  uint64_t x, y, indices;
  uint64_t count;
  uint32_t extents_x[5], extents_y[5];
  int64_t strides_x[5], strides_y[5], strides_indices[5];
  uint32_t window[3], stride[3], padding[3], dilation[3];
};

template <typename Args>
void put_window(const Args& args, const int64_t* dilation, PoolRecord& record) {
  const auto spatial = static_cast<uint32_t>(args.kernel_size_count);
  for (uint32_t i = 0; i < 3; ++i) {
    record.window[i] = record.stride[i] = record.dilation[i] = 1;
    if (i + spatial < 3) continue;
    const uint32_t axis = i + spatial - 3;
    record.window[i] = static_cast<uint32_t>(args.kernel_size[axis]);
    record.stride[i] = static_cast<uint32_t>(args.stride[axis]);
    record.padding[i] = static_cast<uint32_t>(args.padding[axis]);
    if (dilation != nullptr) record.dilation[i] = static_cast<uint32_t>(dilation[axis]);
  }
}

// An invocation reads every element of a window.
constexpr int64_t kMostTaps = 32768;

template <typename Args>
bp_reason window_reason(const Args& args) {
  int64_t taps = 1;
  for (uint64_t i = 0; i < args.kernel_size_count; ++i) {
    taps *= args.kernel_size[i];
    if (taps > kMostTaps) return "a window has more than 32768 elements";
  }
  return nullptr;
}

struct PoolCall {
  PoolOp op;
  const bp_tensor *x, *y, *indices;
  bool counts_padding = false;
};

bp_status submit_pool(Launch& launch, const PoolCall& call, PoolRecord& record) {
  const bool is_backward = call.op == kPoolAverageBackward || call.op == kPoolAdaptiveBackward;
  const bp_tensor& result = is_backward ? *call.x : *call.y;
  const int64_t count = element_count(result);
  if (count == 0) return BP_OK;
  if (count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED, "pooling: the result has more than 2^31 elements");
  }
  record.count = static_cast<uint64_t>(count);
  record.x = address_of(launch, call.x);
  record.y = address_of(launch, call.y);
  put_axes(*call.x, record.extents_x, record.strides_x);
  put_axes(*call.y, record.extents_y, record.strides_y);
  Ranges reads(launch), writes(launch, {&result});
  reads.add(is_backward ? call.y : call.x);
  if (call.indices != nullptr) {
    record.indices = launch.device_address(*call.indices);
    put_axes(*call.indices, nullptr, record.strides_indices);
    writes.add(call.indices);
  }
  const bp_dtype index_dtype = call.indices == nullptr ? bp_dtype{BP_I64} : call.indices->dtype;
  const std::array<uint32_t, 6> constants = {local_size(launch),
                                             call.op,
                                             one_of(kF32Dtypes, result.dtype),
                                             call.indices != nullptr ? 1u : 0u,
                                             call.counts_padding ? 1u : 0u,
                                             one_of(kIndexDtypes, index_dtype)};
  return submit(launch, kPoolModule, constants, record,
                ceil_divide(record.count, local_size(launch)), {reads, writes});
}

bp_reason max_pool_reason(const bp_max_pool_args& args) {
  const int64_t plane = element_count(args.x->ndim - 2, args.x->shape + 2);
  const bp_reason reason = index_reason(args.indices, plane);
  return reason != nullptr ? reason : window_reason(args);
}

bp_status max_pool_launch(const bp_max_pool_args& args, Launch& launch) {
  PoolRecord record{};
  put_window(args, args.dilation, record);
  return submit_pool(launch, {kPoolMax, args.x, args.y, args.indices}, record);
}

bp_status avg_pool_launch(const bp_avg_pool_args& args, Launch& launch) {
  PoolRecord record{};
  put_window(args, nullptr, record);
  return submit_pool(launch, {kPoolAverage, args.x, args.y, nullptr, args.counts_padding != 0},
                     record);
}

bp_status avg_pool_backward_launch(const bp_avg_pool_backward_args& args, Launch& launch) {
  PoolRecord record{};
  put_window(args, nullptr, record);
  return submit_pool(
      launch, {kPoolAverageBackward, args.grad_x, args.grad_y, nullptr, args.counts_padding != 0},
      record);
}

// An invocation reads every element of a bin.
bp_reason bins_reason(const bp_tensor& x, const bp_tensor& y) {
  if (const bp_reason reason = sampling_reason(x, y)) return reason;
  int64_t forward = 1, backward = 1;
  for (uint32_t i = 2; i < x.ndim; ++i) {
    const int64_t n = std::max<int64_t>(x.shape[i], 1), m = std::max<int64_t>(y.shape[i], 1);
    forward *= std::min(n, n / m + 2);
    backward *= std::min(m, m / n + 2);
    if (std::max(forward, backward) > kMostTaps) return "a window has more than 32768 elements";
  }
  return nullptr;
}

bp_reason adaptive_reason(const bp_adaptive_avg_pool_args& args) {
  return bins_reason(*args.x, *args.y);
}

bp_status adaptive_launch(const bp_adaptive_avg_pool_args& args, Launch& launch) {
  PoolRecord record{};
  return submit_pool(launch, {kPoolAdaptive, args.x, args.y, nullptr}, record);
}

bp_reason adaptive_max_reason(const bp_adaptive_max_pool_args& args) {
  const int64_t plane = element_count(args.x->ndim - 2, args.x->shape + 2);
  const bp_reason reason = index_reason(args.indices, plane);
  return reason != nullptr ? reason : bins_reason(*args.x, *args.y);
}

bp_status adaptive_max_launch(const bp_adaptive_max_pool_args& args, Launch& launch) {
  PoolRecord record{};
  return submit_pool(launch, {kPoolAdaptiveMax, args.x, args.y, args.indices}, record);
}

bp_reason adaptive_backward_reason(const bp_adaptive_avg_pool_backward_args& args) {
  return bins_reason(*args.grad_x, *args.grad_y);
}

bp_status adaptive_backward_launch(const bp_adaptive_avg_pool_backward_args& args, Launch& launch) {
  PoolRecord record{};
  return submit_pool(launch, {kPoolAdaptiveBackward, args.grad_x, args.grad_y, nullptr}, record);
}

uint64_t max_pool_backward_workspace(const bp_max_pool_backward_args& args, const Env&) {
  return sum_workspace(*args.grad_x);
}

// A line is a plane of one channel of one image.
bp_status max_pool_backward_launch(const bp_max_pool_backward_args& args, Launch& launch) {
  const bp_tensor &grad_y = *args.grad_y, &indices = *args.indices;
  return submit_scatter_sum(launch, *args.grad_x, nullptr, [&](const bp_tensor& y) {
    Scatter s{.op = "max_pool_backward",
              .adds = true,
              .skips_minus_one = true,
              .bounds = args.bounds,
              .line_ndim = 2};
    s.y.tensor = &y;
    s.src.tensor = &grad_y;
    s.indices.tensor = &indices;
    std::copy_n(y.shape, 2, s.line_shape.begin());
    std::copy_n(y.strides, 2, s.y.line.begin());
    std::copy_n(grad_y.strides, 2, s.src.line.begin());
    std::copy_n(indices.strides, 2, s.indices.line.begin());
    s.walk_ndim = s.place_ndim = y.ndim - 2;
    std::copy_n(grad_y.shape + 2, s.walk_ndim, s.walk_shape.begin());
    std::copy_n(grad_y.strides + 2, s.walk_ndim, s.src.walk.begin());
    std::copy_n(indices.strides + 2, s.walk_ndim, s.indices.walk.begin());
    std::copy_n(y.shape + 2, s.walk_ndim, s.place_shape.begin());
    std::copy_n(y.strides + 2, s.walk_ndim, s.place.begin());
    return s;
  });
}

constexpr auto kIndexedRows = with_indices(kF32Dtypes);

}  // namespace

constinit const bp_kernel kMaxPool =
    make_kernel<bp_max_pool_args, max_pool_launch, max_pool_reason>(
        kernel_row("max_pool", BP_OP_MAX_POOL, {kIndexedRows, 2}));
constinit const bp_kernel kMaxPoolBackward =
    make_kernel<bp_max_pool_backward_args, max_pool_backward_launch, nullptr,
                max_pool_backward_workspace>(
        kernel_row("max_pool_backward", BP_OP_MAX_POOL_BACKWARD, {kIndexedRows, 2}));
constinit const bp_kernel kAvgPool =
    make_kernel<bp_avg_pool_args, avg_pool_launch, window_reason<bp_avg_pool_args>>(
        kernel_row("avg_pool", BP_OP_AVG_POOL, kF32Dtypes));
constinit const bp_kernel kAvgPoolBackward =
    make_kernel<bp_avg_pool_backward_args, avg_pool_backward_launch,
                window_reason<bp_avg_pool_backward_args>>(
        kernel_row("avg_pool_backward", BP_OP_AVG_POOL_BACKWARD, kF32Dtypes));

constinit const bp_kernel kAdaptiveMaxPool =
    make_kernel<bp_adaptive_max_pool_args, adaptive_max_launch, adaptive_max_reason>(
        kernel_row("adaptive_max_pool", BP_OP_ADAPTIVE_MAX_POOL, {kIndexedRows, 2}));
constinit const bp_kernel kAdaptiveAvgPool =
    make_kernel<bp_adaptive_avg_pool_args, adaptive_launch, adaptive_reason>(
        kernel_row("adaptive_avg_pool", BP_OP_ADAPTIVE_AVG_POOL, kF32Dtypes));
constinit const bp_kernel kAdaptiveAvgPoolBackward =
    make_kernel<bp_adaptive_avg_pool_backward_args, adaptive_backward_launch,
                adaptive_backward_reason>(
        kernel_row("adaptive_avg_pool_backward", BP_OP_ADAPTIVE_AVG_POOL_BACKWARD, kF32Dtypes));

}  // namespace bp::vulkan
