// cummax, cummin and logcumsumexp along any axis (running.comp, exponentials.comp).
#include <algorithm>
#include <array>
#include <cstdlib>

#include "backends/vulkan/kernels/rows.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

struct RunningRecord {
  uint64_t x, y, indices;
  uint64_t line_number, size;
  uint32_t extents[BP_MAX_RANK];
  int64_t x_step, y_step, index_step;
  int64_t x_strides[BP_MAX_RANK], y_strides[BP_MAX_RANK], index_strides[BP_MAX_RANK];
};

struct Running {
  const bp_tensor *x, *y, *indices;
  uint32_t axis;
  bool wants_largest = false, is_reverse = false;
};

// No invocation takes more elements of a line: drivers may end a loop silently after 65,535 trips.
constexpr int64_t kMostOfLane = 8192;

const Module& extreme_module(bp_dtype dtype) {
  if (is_f32_class(dtype)) return kRunningF32Module;
  return dtype == BP_F64 ? kRunningF64Module : kRunningI64Module;
}

const Module& exponential_module(bp_dtype dtype) {
  return dtype == BP_F64 ? kExponentialsF64Module : kExponentialsF32Module;
}

int64_t step_of(const bp_tensor& tensor, uint32_t axis) {
  return axis_stride(tensor, axis) * dtype_size_bytes(tensor.dtype);
}

RunningRecord record_of(Launch& launch, const Running& r, const Walk& lines) {
  RunningRecord record{};
  record.x = launch.device_address(*r.x);
  record.y = launch.device_address(*r.y);
  record.x_step = step_of(*r.x, r.axis);
  record.y_step = step_of(*r.y, r.axis);
  if (r.indices != nullptr) {
    record.indices = launch.device_address(*r.indices);
    record.index_step = step_of(*r.indices, r.axis);
  }
  record.line_number = static_cast<uint64_t>(lines.count);
  record.size = static_cast<uint64_t>(axis_extent(*r.x, r.axis));
  if (r.is_reverse) {
    record.x += (record.size - 1) * static_cast<uint64_t>(record.x_step);
    record.y += (record.size - 1) * static_cast<uint64_t>(record.y_step);
    record.x_step = -record.x_step;
    record.y_step = -record.y_step;
  }
  copy_extents(lines, record.extents);
  std::ranges::copy(lines.strides[0], record.x_strides);
  std::ranges::copy(lines.strides[1], record.y_strides);
  std::ranges::copy(lines.strides[2], record.index_strides);
  return record;
}

// Returns how many invocations share a line. If neighbouring lines are closer to each other than
// the elements of a line, each invocation has its own line.
uint32_t lanes_of(const Env& env, const RunningRecord& record) {
  const auto size = static_cast<int64_t>(record.size);
  const bool is_across = std::abs(record.x_strides[0]) < std::abs(record.x_step) &&
                         record.line_number >= local_size(env);
  if (is_across && size <= kMostOfLane) return 1;
  return lanes_of_row(env, static_cast<int64_t>(record.line_number), size, kMostOfLane);
}

bp_status submit_running(Launch& launch, const Running& r, const Module& module) {
  if (element_count(*r.x) == 0) return BP_OK;
  const Walk lines = make_row_walk({r.x, r.y, r.indices}, r.axis, 1);
  const RunningRecord record = record_of(launch, r, lines);
  const uint32_t lanes = lanes_of(launch, record), size = row_group_size(launch, lanes);
  const bp_dtype index_dtype = r.indices == nullptr ? bp_dtype{BP_I64} : r.indices->dtype;
  const std::array<uint32_t, 7> constants = {size,
                                             lanes,
                                             one_of(kNumberDtypes, r.x->dtype),
                                             std::max(lines.rank, 1u),
                                             r.wants_largest ? 1u : 0u,
                                             r.indices != nullptr ? 1u : 0u,
                                             one_of(kIndexDtypes, index_dtype)};
  return submit(launch, module, constants, record, ceil_divide(record.line_number, size / lanes),
                {Ranges(launch, {r.x}), Ranges(launch, {r.y, r.indices})});
}

template <typename Args>
bp_reason running_supports(const Args& args) {
  constexpr int64_t kMostOfLine = int64_t{1} << 21;
  const int64_t size = axis_extent(*args.x, static_cast<size_t>(args.axis));
  if (size > kMostOfLine) return "the axis has more than 2^21 elements";
  const bool is_counted = size == 0 || element_count(*args.x) / size < int64_t{1} << 31;
  return is_counted ? nullptr : "x has 2^31 lines or more";
}

template <typename Args, bool kWantsLargest>
bp_status extreme_launch(const Args& args, Launch& launch) {
  const Running running{.x = args.x,
                        .y = args.y,
                        .indices = args.indices,
                        .axis = static_cast<uint32_t>(args.axis),
                        .wants_largest = kWantsLargest};
  return submit_running(launch, running, extreme_module(args.x->dtype));
}

bp_status logcumsumexp_launch(const bp_logcumsumexp_args& args, Launch& launch) {
  const Running running{.x = args.x,
                        .y = args.y,
                        .indices = nullptr,
                        .axis = static_cast<uint32_t>(args.axis),
                        .is_reverse = args.is_reverse != 0};
  return submit_running(launch, running, exponential_module(args.x->dtype));
}

constexpr auto kIndexRows = with_indices(kNumberDtypes);

template <typename Args, bool kWantsLargest>
constexpr bp_kernel extreme_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, extreme_launch<Args, kWantsLargest>, running_supports<Args>>(
      kernel_row(name, op, {kIndexRows, 2}));
}

}  // namespace

constinit const bp_kernel kCummax = extreme_kernel<bp_cummax_args, true>("cummax", BP_OP_CUMMAX);
constinit const bp_kernel kCummin = extreme_kernel<bp_cummin_args, false>("cummin", BP_OP_CUMMIN);
constinit const bp_kernel kLogcumsumexp =
    make_kernel<bp_logcumsumexp_args, logcumsumexp_launch, running_supports<bp_logcumsumexp_args>>(
        kernel_row("logcumsumexp", BP_OP_LOGCUMSUMEXP, kFloatDtypes));

}  // namespace bp::vulkan
