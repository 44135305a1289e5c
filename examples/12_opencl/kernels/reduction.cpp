// sum, mean, amax, logsumexp and argmax. A group of 64 items computes one element of the result:
// each item takes every 64th element, and the group adds what the items have as a tree.
#include <algorithm>
#include <string>

#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

// The elements of the result, and the elements that each of them is made of. Tensor 0 of the grids
// is y, and tensor 1 is x.
struct Reduction {
  Grid outer, inner;
};

Reduction reduction_of(const bp_tensor& x, const bp_tensor& y, std::span<const int64_t> axes,
                       bool keepdims) {
  Reduction r{grid_at({&y, &x}), {}};
  uint32_t y_axis = 0;
  for (uint32_t axis = 0; axis < x.ndim; ++axis) {
    const bool is_reduced = std::ranges::find(axes, int64_t{axis}) != axes.end();
    const int64_t x_stride = x.strides[axis];
    if (is_reduced) {
      add_axis(r.inner, x.shape[axis], {0, x_stride, 0, 0});
    } else {
      add_axis(r.outer, x.shape[axis], {y.strides[y_axis], x_stride, 0, 0});
    }
    if (!is_reduced || keepdims) ++y_axis;
  }
  return r;
}

// -0 changes no sum. It is the sum of zeros that are all negative, and the sum of nothing is +0.
constexpr const char* kSum = R"(
  float sum = inner.count == 0 ? 0.0f : -0.0f;
  for (long k = me; k < inner.count; k += 64) sum += X_LOAD(x, from + place(&inner, k, 1));
  sum = sum_of_group(partial, sum);
  if (IS_MEAN) sum /= (float)inner.count;
  if (me == 0) Y_STORE(y, to, sum);
)";
constexpr const char* kAmax = R"(
  float most = -INFINITY;
  for (long k = me; k < inner.count; k += 64) {
    most = larger(X_LOAD(x, from + place(&inner, k, 1)), most);
  }
  most = largest_of_group(partial, most);
  if (me == 0) Y_STORE(y, to, most);
)";
constexpr const char* kLogsumexp = R"(
  float most = -INFINITY;
  for (long k = me; k < inner.count; k += 64) {
    most = larger(X_LOAD(x, from + place(&inner, k, 1)), most);
  }
  most = largest_of_group(partial, most);
  const float base = isfinite(most) ? most : 0.0f;
  float sum = 0.0f;
  for (long k = me; k < inner.count; k += 64) {
    sum += exp(X_LOAD(x, from + place(&inner, k, 1)) - base);
  }
  sum = sum_of_group(partial, sum);
  if (me == 0) Y_STORE(y, to, most == INFINITY || most != most ? most : base + log(sum));
)";
constexpr const char* kArgmax = R"(
  float most = -INFINITY;
  long best = LONG_MAX;
  for (long k = me; k < inner.count; k += 64) {
    const float value = X_LOAD(x, from + place(&inner, k, 1));
    if (best != LONG_MAX && (most != most || !(value != value || value > most))) continue;
    most = value;
    best = k;
  }
  local long places[64];
  partial[me] = most;
  places[me] = best;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (me != 0) return;
  for (int k = 1; k < 64; ++k) {
    if (places[k] == LONG_MAX) continue;
    const float value = partial[k];
    const bool is_equal = value == most || (value != value && most != most);
    const bool is_larger = value != value ? most == most : value > most;
    if (!is_larger && !(is_equal && places[k] < best)) continue;
    most = value;
    best = places[k];
  }
  Y_STORE(y, to, best);
)";

std::string source_of(const bp_tensor& x, const bp_tensor& y, const char* body, bool is_mean) {
  return prelude({{"X", x.dtype}, {"Y", y.dtype}}) + "#define IS_MEAN " + (is_mean ? "1" : "0") +
         R"(
kernel void reduce(Grid outer, Grid inner, global Y_T* y, global const X_T* x) {
  local float partial[64];
  const long me = get_local_id(0), to = place(&outer, get_group_id(0), 0),
             from = place(&outer, get_group_id(0), 1);
)" + body +
         "}\n";
}

bp_status submit(const bp_tensor& x, const bp_tensor& y, const Reduction& r, const char* body,
                 bool is_mean, Launch& launch) {
  Call call(source_of(x, y, body, is_mean), "reduce");
  call.value(r.outer).value(r.inner).buffer(Launch::place(y)).buffer(Launch::place(x));
  call.groups(r.outer.count, 1, 1, 64, 1);
  return launch.submit([call](CommandQueue& queue) { queue.run(call); });
}

template <typename Args, const auto& kBody, bool kIsMean = false>
bp_status reduce(const Args& args, Launch& launch) {
  const Reduction r =
      reduction_of(*args.x, *args.y, {args.axes, args.axes_count}, args.keepdims != 0);
  return submit(*args.x, *args.y, r, kBody, kIsMean, launch);
}

bp_status argmax(const bp_argmax_args& args, Launch& launch) {
  const int64_t axis = args.axis;
  const Reduction r = reduction_of(*args.x, *args.y, {&axis, 1}, args.keepdims != 0);
  return submit(*args.x, *args.y, r, kArgmax, false, launch);
}

template <typename Args>
bp_reason has_elements(const Args& args) {
  const bool is_empty = bp::element_count(*args.x) == 0 && bp::element_count(*args.y) != 0;
  return is_empty ? "x has no elements, so there is no largest one" : nullptr;
}

bp_reason argmax_supports(const bp_argmax_args& args) {
  if (const bp_reason reason = has_elements(args); reason != nullptr) return reason;
  return bp::index_reason(args.y, bp::axis_extent(*args.x, static_cast<size_t>(args.axis)));
}

}  // namespace

constinit const bp_kernel kSumKernel = make_kernel<bp_sum_args, reduce<bp_sum_args, kSum>>(
    bp::kernel_row("sum", BP_OP_SUM, {kFloatPairs, 2}));
constinit const bp_kernel kMean = make_kernel<bp_mean_args, reduce<bp_mean_args, kSum, true>>(
    bp::kernel_row("mean", BP_OP_MEAN, kFloats));
constinit const bp_kernel kAmaxKernel =
    make_kernel<bp_amax_args, reduce<bp_amax_args, kAmax>, has_elements<bp_amax_args>>(
        bp::kernel_row("amax", BP_OP_AMAX, kFloats));
constinit const bp_kernel kLogsumexpKernel =
    make_kernel<bp_logsumexp_args, reduce<bp_logsumexp_args, kLogsumexp>>(
        bp::kernel_row("logsumexp", BP_OP_LOGSUMEXP, kFloats));
constinit const bp_kernel kArgmaxKernel = make_kernel<bp_argmax_args, argmax, argmax_supports>(
    bp::kernel_row("argmax", BP_OP_ARGMAX, {kFloatsWithIndices, 2}));

}  // namespace acme_opencl
