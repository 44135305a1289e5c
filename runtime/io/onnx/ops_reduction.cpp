// Reductions over axes, the places of extremes, and running sums.
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

Tensor max_of(const Tensor& x, const Axes& axes, bool keepdims) {
  return amax_of(x, axes, keepdims);
}

Tensor min_of(const Tensor& x, const Axes& axes, bool keepdims) {
  return amin_of(x, axes, keepdims);
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

constexpr Reduce kL2 = of_floats<sum_of, bp::square, bp::sqrt>;
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

// Returns `x` with its order turned around.
Tensor negative(const Tensor& x) {
  return is_plain_float(x.dtype()) ? neg(x) : bitwise_not(ordered(x));
}

Values place_of_largest(const Call& call, const Tensor& x) {
  const int64_t axis = call.axis(call.integer("axis", 0), std::max<int64_t>(x.ndim(), 1));
  const bool keepdims = call.flag("keepdims", true);
  if (!call.flag("select_last_index", false)) return {argmax(x, axis, keepdims)};
  return {(x.shape(axis) - 1) - argmax(flip(x, axis), axis, keepdims)};
}

Values arg_max(const Call& call) { return place_of_largest(call, ordered(call.input(0))); }
Values arg_min(const Call& call) { return place_of_largest(call, negative(call.input(0))); }

Values cum_sum(const Call& call) {
  Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer(1), x.ndim());
  const bool is_reverse = call.flag("reverse", false);
  if (is_reverse) x = flip(x, axis);
  Tensor y = running_sum(x, axis);
  if (call.flag("exclusive", false) && x.shape(axis) > 0) {
    const Tensor zero = bp::zeros({}, x.dtype(), x.device());
    y = pad_axis(y.narrow(axis, 0, x.shape(axis) - 1), axis, 1, 0, zero);
  }
  return {is_reverse ? flip(y, axis) : y};
}

constexpr const char* kOld = "axes keepdims";
constexpr const char* kNew = "keepdims noop_with_empty_axes";

constexpr OpRow kRows[] = {
    {"ArgMax", 1, arg_max, "axis keepdims select_last_index", OnnxRoute::kOp},
    {"ArgMin", 1, arg_min, "axis keepdims select_last_index"},
    {"CumSum", 11, cum_sum, "exclusive reverse"},
    {"ReduceL1", 1, axes_attribute<l1_norm>, kOld},
    {"ReduceL1", 18, axes_input<l1_norm>, kNew},
    {"ReduceL2", 1, axes_attribute<kL2>, kOld},
    {"ReduceL2", 18, axes_input<kL2>, kNew},
    {"ReduceLogSum", 1, axes_attribute<kLogSum>, kOld},
    {"ReduceLogSum", 18, axes_input<kLogSum>, kNew},
    {"ReduceLogSumExp", 1, axes_attribute<kLogSumExp>, kOld, OnnxRoute::kOp},
    {"ReduceLogSumExp", 18, axes_input<kLogSumExp>, kNew, OnnxRoute::kOp},
    {"ReduceMax", 1, axes_attribute<max_of>, kOld, OnnxRoute::kOp},
    {"ReduceMax", 18, axes_input<max_of>, kNew, OnnxRoute::kOp},
    {"ReduceMean", 1, axes_attribute<mean_of>, kOld, OnnxRoute::kOp},
    {"ReduceMean", 18, axes_input<mean_of>, kNew, OnnxRoute::kOp},
    {"ReduceMin", 1, axes_attribute<min_of>, kOld},
    {"ReduceMin", 18, axes_input<min_of>, kNew},
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
