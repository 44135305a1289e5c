// Comparisons, logic and the choice between two inputs.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Binary = Tensor (*)(const Operand&, const Operand&);

template <Binary kOp>
Values compared(const Call& call) {
  const auto [a, b] = operands(call);
  return {kOp(ordered(a), ordered(b))};
}

template <Binary kOp>
Values logical(const Call& call) {
  const auto [a, b] = operands(call);
  return {kOp(a, b)};
}

Values choose(const Call& call) { return {where(call.input(0), call.input(1), call.input(2))}; }

constexpr OpRow kRows[] = {
    {"And", 1, logical<bp::logical_and>, "axis broadcast", OnnxRoute::kOp},
    {"Equal", 1, compared<bp::eq>, "axis broadcast", OnnxRoute::kOp},
    {"Greater", 1, compared<bp::gt>, "axis broadcast", OnnxRoute::kOp},
    {"GreaterOrEqual", 12, compared<bp::ge>, "", OnnxRoute::kOp},
    {"Less", 1, compared<bp::lt>, "axis broadcast", OnnxRoute::kOp},
    {"LessOrEqual", 12, compared<bp::le>, "", OnnxRoute::kOp},
    {"Or", 1, logical<bp::logical_or>, "axis broadcast", OnnxRoute::kOp},
    {"Where", 9, choose, "", OnnxRoute::kOp},
    {"Xor", 1, logical<bp::logical_xor>, "axis broadcast", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> logic_ops() { return kRows; }

}  // namespace bp::onnx
