// Reductions over axes, the places of extremes, and running sums and products.
#include <algorithm>
#include <cmath>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Axes = std::vector<int64_t>;
using Reduce = Tensor (*)(const Tensor& x, const Axes& axes, bool keepdims);

// Integers keep their dtype, and their sums wrap.
Tensor sum_of(const Tensor& x, const Axes& axes, bool keepdims) {
  if (is_plain_float(x.dtype())) return sum(x, axes, keepdims);
  return converted(sum(computable(x), axes, keepdims, BP_I64), x.dtype());
}

Tensor mean_of(const Tensor& x, const Axes& axes, bool keepdims) {
  if (is_plain_float(x.dtype())) return mean(x, axes, keepdims);
  return converted(mean(converted(x, BP_F64), axes, keepdims), x.dtype());
}

// Returns whether axes of no elements are reduced, to results that have elements.
bool reduces_nothing(const Tensor& x, const Axes& axes) {
  bool is_empty = false;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    const bool is_reduced = std::ranges::find(axes, i) != axes.end();
    if (!is_reduced && x.shape(i) == 0) return false;
    is_empty = is_empty || x.shape(i) == 0;
  }
  return is_empty;
}

// The ends of what a dtype can hold.
Scalar end_of(bp_dtype dtype, bool is_upper) {
  if (is_plain_float(dtype)) {
    return is_upper ? HUGE_VAL : -HUGE_VAL;
  }
  if (dtype == BP_BOOL) return int64_t{is_upper};
  const uint32_t bits = bp_dtype_bits(dtype);
  const uint64_t ones = UINT64_MAX >> (64 - bits);
  const bool is_signed = dtype == BP_I8 || dtype == BP_I16 || dtype == BP_I32 || dtype == BP_I64;
  if (!is_signed) return is_upper ? ones : uint64_t{0};
  const auto highest = static_cast<int64_t>(ones >> 1);
  return is_upper ? highest : -highest - 1;
}

// The largest and the smallest of no elements are the ends of the dtype: infinities of floats.
template <bool kIsLargest>
Tensor extreme_of(const Tensor& x, const Axes& axes, bool keepdims) {
  if (!reduces_nothing(x, axes)) {
    return kIsLargest ? amax_of(x, axes, keepdims) : amin_of(x, axes, keepdims);
  }
  Axes shape;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    const bool is_reduced = std::ranges::find(axes, i) != axes.end();
    if (keepdims || !is_reduced) shape.push_back(is_reduced ? 1 : x.shape(i));
  }
  return full(shape, end_of(x.dtype(), !kIsLargest), x.dtype(), x.device());
}

Tensor sum_square(const Tensor& x, const Axes& axes, bool keepdims) {
  return converted(sum_of(square(computable(x)), axes, keepdims), x.dtype());
}

Tensor l1_norm(const Tensor& x, const Axes& axes, bool keepdims) {
  return sum_of(is_wide_unsigned(x.dtype()) ? x : abs(x), axes, keepdims);
}

// Functions of floats are computed in f64 for integers.
template <Reduce kReduce, Tensor (*kBefore)(const Tensor&), Tensor (*kAfter)(const Tensor&)>
Tensor of_floats(const Tensor& x, const Axes& axes, bool keepdims) {
  const Tensor wide = is_plain_float(x.dtype()) ? x : converted(x, BP_F64);
  return converted(kAfter(kReduce(kBefore(wide), axes, keepdims)), x.dtype());
}

Tensor same(const Tensor& x) { return x; }

Tensor log_sum_exp(const Tensor& x, const Axes& axes, bool keepdims) {
  return logsumexp(x, axes, keepdims);
}

Tensor l2_norm(const Tensor& x, const Axes& axes, bool keepdims) {
  return norm(x, axes, 2, keepdims);
}

constexpr Reduce kL2 = of_floats<l2_norm, same, same>;
constexpr Reduce kLogSum = of_floats<sum_of, same, bp::log>;
constexpr Reduce kLogSumExp = of_floats<log_sum_exp, same, same>;

Values reduced(const Call& call, Reduce reduce, Axes axes) {
  const Tensor x = call.input(0);
  if (axes.empty()) {
    if (call.flag("noop_with_empty_axes", false)) return {x};
    axes = all_axes(x.ndim());
  }
  return {reduce(x, call.axes(axes, x.ndim()), call.flag("keepdims", true))};
}

template <Reduce kReduce>
Values axes_attribute(const Call& call) {
  return reduced(call, kReduce, call.integers("axes", {}));
}

template <Reduce kReduce>
Values axes_input(const Call& call) {
  return reduced(call, kReduce, call.has(1) ? call.ints(1) : Axes());
}

// ---- Places ------------------------------------------------------------------------------------

// Returns argmax or argmin, or the last of equal extremes.
template <auto kPlace>
Values place_of_extreme(const Call& call) {
  const Tensor x = ordered(call.input(0));
  const int64_t axis = call.axis(call.integer("axis", 0), std::max<int64_t>(x.ndim(), 1));
  const bool keepdims = call.flag("keepdims", true);
  if (!call.flag("select_last_index", false)) return {kPlace(x, axis, keepdims, BP_I64)};
  return {(x.shape(axis) - 1) - kPlace(flip(x, axis), axis, keepdims, BP_I64)};
}

// Returns cumsum or cumprod. Integers keep their dtype, and their results wrap.
template <auto kOp>
Values running(const Call& call) {
  const Tensor x = computable(call.input(0));
  const int64_t axis = call.axis(call.integer(1), x.ndim());
  const bool is_exclusive = call.flag("exclusive", false);
  const bool is_reverse = call.flag("reverse", false);
  const bp_dtype dtype = is_plain_float(x.dtype()) ? x.dtype() : bp_dtype{BP_I64};
  return {converted(kOp(x, axis, is_exclusive, is_reverse, dtype), call.input(0).dtype())};
}

constexpr const char* kOld = "axes keepdims";
constexpr const char* kNew = "keepdims noop_with_empty_axes";

constexpr OpRow kRows[] = {
    {"ArgMax", 1, place_of_extreme<argmax>, "axis keepdims select_last_index", OnnxRoute::kOp},
    {"ArgMin", 1, place_of_extreme<argmin>, "axis keepdims select_last_index", OnnxRoute::kOp},
    {"CumProd", 26, running<cumprod>, "exclusive reverse", OnnxRoute::kOp},
    {"CumSum", 11, running<cumsum>, "exclusive reverse", OnnxRoute::kOp},
    {"ReduceL1", 1, axes_attribute<l1_norm>, kOld},
    {"ReduceL1", 18, axes_input<l1_norm>, kNew},
    {"ReduceL2", 1, axes_attribute<kL2>, kOld, OnnxRoute::kOp},
    {"ReduceL2", 18, axes_input<kL2>, kNew, OnnxRoute::kOp},
    {"ReduceLogSum", 1, axes_attribute<kLogSum>, kOld},
    {"ReduceLogSum", 18, axes_input<kLogSum>, kNew},
    {"ReduceLogSumExp", 1, axes_attribute<kLogSumExp>, kOld, OnnxRoute::kOp},
    {"ReduceLogSumExp", 18, axes_input<kLogSumExp>, kNew, OnnxRoute::kOp},
    {"ReduceMax", 1, axes_attribute<extreme_of<true>>, kOld, OnnxRoute::kOp},
    {"ReduceMax", 18, axes_input<extreme_of<true>>, kNew, OnnxRoute::kOp},
    {"ReduceMean", 1, axes_attribute<mean_of>, kOld, OnnxRoute::kOp},
    {"ReduceMean", 18, axes_input<mean_of>, kNew, OnnxRoute::kOp},
    {"ReduceMin", 1, axes_attribute<extreme_of<false>>, kOld},
    {"ReduceMin", 18, axes_input<extreme_of<false>>, kNew},
    {"ReduceProd", 1, axes_attribute<product>, kOld},
    {"ReduceProd", 18, axes_input<product>, kNew},
    {"ReduceSum", 1, axes_attribute<sum_of>, kOld, OnnxRoute::kOp},
    {"ReduceSum", 13, axes_input<sum_of>, kNew, OnnxRoute::kOp},
    {"ReduceSumSquare", 1, axes_attribute<sum_square>, kOld},
    {"ReduceSumSquare", 18, axes_input<sum_square>, kNew},
};

}  // namespace

std::span<const OpRow> reduction_ops() { return kRows; }

}  // namespace bp::onnx
