// Activations that have parameters, and those over an axis.
#include <cfloat>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

Tensor clip(const Tensor& x, const Tensor& low, const Tensor& high) {
  Tensor y = ordered(x);
  if (low) y = maximum(y, ordered(low));
  if (high) y = minimum(y, ordered(high));
  return unordered(y, x.dtype());
}

Values clip_attributes(const Call& call) {
  const Tensor x = call.input(0);
  const auto bound = [&](const char* name) {
    return call.has(name) ? scalar_like(call.number(name, 0), x) : Tensor();
  };
  return {clip(x, bound("min"), bound("max"))};
}

Values clip_inputs(const Call& call) {
  return {clip(call.input(0), call.optional(1), call.optional(2))};
}

Values run_elu(const Call& call) { return {elu(call.input(0), call.number("alpha", 1))}; }

Values run_celu(const Call& call) { return {celu(call.input(0), call.number("alpha", 1))}; }

Values run_selu(const Call& call) {
  if (!call.has("alpha") && !call.has("gamma")) return {selu(call.input(0))};
  const double alpha = call.number("alpha", 1.67326319217681884765625);
  const double gamma = call.number("gamma", 1.05070102214813232421875);
  return {mul(elu(call.input(0), alpha), gamma)};
}

Values run_leaky_relu(const Call& call) {
  return {leaky_relu(call.input(0), call.number("alpha", 0.01))};
}

// Before opset 7 the slope of each channel lay along axis 1.
Values prelu(const Call& call) {
  const Tensor x = call.input(0);
  Tensor slope = call.input(1);
  if (call.opset() < 7 && slope.ndim() == 1 && x.ndim() > 1) slope = align_axis(slope, 1, x.ndim());
  if (is_plain_float(x.dtype())) return {leaky_relu(x, slope)};
  return {where(lt(x, 0), mul(x, slope), x)};
}

Values hard_sigmoid(const Call& call) {
  const Tensor line = call.input(0) * call.number("alpha", 0.2) + call.number("beta", 0.5);
  return {minimum(maximum(line, 0), 1)};
}

Values thresholded_relu(const Call& call) {
  const Tensor x = call.input(0);
  return {keep_where(gt(x, call.number("alpha", 1)), x)};
}

Values shrink(const Call& call) {
  const Tensor x = call.input(0);
  const Tensor wide = is_plain_float(x.dtype()) ? x : x.to(BP_F64);
  const double bound = call.number("lambd", 0.5);
  const double bias = call.number("bias", 0);
  const Tensor above = keep_where(gt(wide, bound), wide - bias);
  return {where(lt(wide, -bound), wide + bias, above).to(x.dtype())};
}

Values run_gelu(const Call& call) {
  const std::string approximate = call.text("approximate", "none");
  if (approximate == "tanh") return {gelu(call.input(0), GeluApproximation::kTanh)};
  if (approximate == "none") return {gelu(call.input(0))};
  call.refuse("attribute 'approximate' is '" + approximate + "'; allowed: none and tanh");
}

Values swish(const Call& call) {
  const Tensor x = call.input(0);
  const double alpha = call.number("alpha", 1);
  if (alpha == 1) return {silu(x)};
  return {mul(x, sigmoid(mul(x, alpha)))};
}

// Swish of the gate, input 0, times input 1.
Values swish_gate(const Call& call) {
  const Tensor gate = call.input(0), x = call.input(1);
  if (!(gate.shape() == x.shape())) {
    call.refuse("the gate is " + bp::to_string(gate.shape()) + " and input 1 " +
                bp::to_string(x.shape()) + "; allowed: the same shape");
  }
  const double alpha = call.number("alpha", 1);
  if (alpha == 1) return {swiglu(gate, x)};
  return {mul(mul(gate, sigmoid(mul(gate, alpha))), x)};
}

// ---- Over an axis ------------------------------------------------------------------------------

Tensor run_softmax(const Tensor& x, int64_t axis) { return softmax(x, axis); }
Tensor run_log_softmax(const Tensor& x, int64_t axis) { return log_softmax(x, axis); }

// The first of the largest elements is 1, the others 0.
Tensor hardmax(const Tensor& x, int64_t axis) {
  return one_hot(argmax(x, axis), x.shape(axis), axis).to(x.dtype());
}

template <Tensor (*kOp)(const Tensor&, int64_t)>
Values along_axis(const Call& call) {
  const Tensor x = call.input(0);
  return {kOp(x, call.axis(call.integer("axis", -1), x.ndim()))};
}

// Before opset 13 all axes from `axis` on counted as one.
template <Tensor (*kOp)(const Tensor&, int64_t)>
Values flattened(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer("axis", 1), x.ndim());
  int64_t rows = 1;
  for (int64_t i = 0; i < axis; ++i) rows *= x.shape(i);
  const int64_t columns = rows == 0 ? 0 : x.numel() / rows;
  return {kOp(x.reshape({rows, columns}), 1).reshape(x.shape())};
}

constexpr OpRow kRows[] = {
    {"Celu", 12, run_celu, "alpha", OnnxRoute::kOp},
    {"Clip", 1, clip_attributes, "min max"},
    {"Clip", 11, clip_inputs, ""},
    {"Elu", 1, run_elu, "alpha", OnnxRoute::kOp},
    {"Gelu", 20, run_gelu, "approximate", OnnxRoute::kOp},
    {"HardSigmoid", 1, hard_sigmoid, "alpha beta"},
    {"Hardmax", 1, flattened<hardmax>, "axis"},
    {"Hardmax", 13, along_axis<hardmax>, "axis"},
    {"LeakyRelu", 1, run_leaky_relu, "alpha", OnnxRoute::kOp},
    {"LogSoftmax", 1, flattened<run_log_softmax>, "axis", OnnxRoute::kOp},
    {"LogSoftmax", 13, along_axis<run_log_softmax>, "axis", OnnxRoute::kOp},
    {"PRelu", 1, prelu, "", OnnxRoute::kOp},
    {"Selu", 1, run_selu, "alpha gamma", OnnxRoute::kOp},
    {"Shrink", 9, shrink, "lambd bias"},
    {"Softmax", 1, flattened<run_softmax>, "axis", OnnxRoute::kOp},
    {"Softmax", 13, along_axis<run_softmax>, "axis", OnnxRoute::kOp},
    {"SwiGLU", 28, swish_gate, "alpha", OnnxRoute::kOp},
    {"Swish", 24, swish, "alpha"},
    {"ThresholdedRelu", 10, thresholded_relu, "alpha"},
};

}  // namespace

std::span<const OpRow> activation_ops() { return kRows; }

}  // namespace bp::onnx
