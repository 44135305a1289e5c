// Operators of one input whose elements are independent of each other.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

template <Tensor (*kOp)(const Tensor&)>
Values run_unary(const Call& call) {
  return {kOp(call.input(0))};
}

Values bitwise_not_of_all(const Call& call) {
  const Tensor x = call.input(0);
  return {converted(bitwise_not(computable(x)), x.dtype())};
}

Values identity(const Call& call) { return {call.value(0)}; }

Values is_inf(const Call& call) {
  const Tensor x = call.input(0);
  const bool takes_negative = call.flag("detect_negative", true);
  const bool takes_positive = call.flag("detect_positive", true);
  if (takes_negative && takes_positive) return {isinf(x)};
  if (!takes_negative && !takes_positive) return {zeros(x.shape(), BP_BOOL, x.device())};
  return {logical_and(isinf(x), takes_positive ? gt(x, 0) : lt(x, 0))};
}

constexpr OpRow kRows[] = {
    {"Abs", 1, run_unary<bp::abs>, "", OnnxRoute::kOp},
    {"Acos", 7, run_unary<bp::acos>, "", OnnxRoute::kOp},
    {"Acosh", 9, run_unary<bp::acosh>, "", OnnxRoute::kOp},
    {"Asin", 7, run_unary<bp::asin>, "", OnnxRoute::kOp},
    {"Asinh", 9, run_unary<bp::asinh>, "", OnnxRoute::kOp},
    {"Atan", 7, run_unary<bp::atan>, "", OnnxRoute::kOp},
    {"Atanh", 9, run_unary<bp::atanh>, "", OnnxRoute::kOp},
    {"BitwiseNot", 18, bitwise_not_of_all, "", OnnxRoute::kOp},
    {"Ceil", 1, run_unary<bp::ceil>, "", OnnxRoute::kOp},
    {"Cos", 7, run_unary<bp::cos>, "", OnnxRoute::kOp},
    {"Cosh", 9, run_unary<bp::cosh>, "", OnnxRoute::kOp},
    {"Erf", 9, run_unary<bp::erf>, "", OnnxRoute::kOp},
    {"Exp", 1, run_unary<bp::exp>, "", OnnxRoute::kOp},
    {"Floor", 1, run_unary<bp::floor>, "", OnnxRoute::kOp},
    {"HardSwish", 14, run_unary<bp::hardswish>, "", OnnxRoute::kOp},
    {"Identity", 1, identity, "", OnnxRoute::kView},
    {"IsInf", 10, is_inf, "detect_negative detect_positive"},
    {"IsNaN", 9, run_unary<bp::isnan>, "", OnnxRoute::kOp},
    {"Log", 1, run_unary<bp::log>, "", OnnxRoute::kOp},
    {"Mish", 18, run_unary<bp::mish>, "", OnnxRoute::kOp},
    {"Neg", 1, run_unary<bp::neg>, "", OnnxRoute::kOp},
    {"Not", 1, run_unary<bp::logical_not>, "", OnnxRoute::kOp},
    {"Reciprocal", 1, run_unary<bp::reciprocal>, "", OnnxRoute::kOp},
    {"Relu", 1, run_unary<bp::relu>, "", OnnxRoute::kOp},
    {"Round", 11, run_unary<bp::round>, "", OnnxRoute::kOp},
    {"Sigmoid", 1, run_unary<bp::sigmoid>, "", OnnxRoute::kOp},
    {"Sign", 9, run_unary<bp::sign>, "", OnnxRoute::kOp},
    {"Sin", 7, run_unary<bp::sin>, "", OnnxRoute::kOp},
    {"Sinh", 9, run_unary<bp::sinh>, "", OnnxRoute::kOp},
    {"Softplus", 1, run_unary<bp::softplus>, "", OnnxRoute::kOp},
    {"Softsign", 1, run_unary<bp::softsign>, "", OnnxRoute::kOp},
    {"Sqrt", 1, run_unary<bp::sqrt>, "", OnnxRoute::kOp},
    {"Tan", 7, run_unary<bp::tan>, "", OnnxRoute::kOp},
    {"Tanh", 1, run_unary<bp::tanh>, "", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> unary_ops() { return kRows; }

}  // namespace bp::onnx
