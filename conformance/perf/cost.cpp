#include "conformance/perf/cost.hpp"

#include <algorithm>

namespace bp::conformance {
namespace {

const TensorArgument& tensor(const OpCase& op_case, std::string_view name) {
  return *std::ranges::find(op_case.tensors, name, &TensorArgument::name);
}

double count_of(const Shape& shape) { return static_cast<double>(element_count(shape)); }

double count_of(const OpCase& op_case, std::string_view name) {
  return count_of(tensor(op_case, name).shape);
}

// Elements with a place of their own: axes of stride 0 hold one.
double distinct_count(const TensorArgument& argument) {
  const Placement placement = place(argument.layout, argument.shape);
  double count = 1;
  for (size_t axis = 0; axis < argument.shape.size(); ++axis) {
    if (argument.shape[axis] == 0) return 0;
    if (placement.strides[axis] != 0) count *= static_cast<double>(argument.shape[axis]);
  }
  return count;
}

// The argument that is read by index, and the tensor with one element for each look-up.
bool is_looked_up(const OpCase& op_case, const TensorArgument& argument) {
  switch (op_case.op) {
    case BP_OP_EMBEDDING:
      return argument.name == "weight";
    case BP_OP_GATHER:
    case BP_OP_INDEX_SELECT:
      return argument.name == "x";
    default:
      return false;
  }
}

int64_t integer_attribute(const OpCase& op_case, std::string_view name) {
  const auto found = std::ranges::find(op_case.attributes, name, &Attribute::name);
  return std::get<int64_t>(found->value);
}

// Elements of a weight that one output of a convolution multiplies: (O, C / groups, taps...).
double taps_of(const OpCase& op_case, std::string_view weight) {
  const Shape& shape = tensor(op_case, weight).shape;
  return count_of(Shape(shape.begin() + 1, shape.end()));
}

// Of a causal call the last query sees the last key.
double seen_pairs(const OpCase& op_case) {
  const Shape &q = tensor(op_case, "q").shape, &k = tensor(op_case, "k").shape;
  const int64_t queries = q[2], keys = k[2];
  const bool is_causal = integer_attribute(op_case, "is_causal") != 0;
  double pairs = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t seen = std::clamp<int64_t>(i + 1 + keys - queries, 0, keys);
    pairs += static_cast<double>(is_causal ? seen : keys);
  }
  return pairs * static_cast<double>(q[0] * q[1]);
}

double flops_of(const OpCase& op_case) {
  switch (op_case.op) {
    case BP_OP_MATMUL:
      return 2 * count_of(op_case, "y") * static_cast<double>(tensor(op_case, "a").shape.back());
    case BP_OP_LINEAR:
      return 2 * count_of(op_case, "y") * static_cast<double>(tensor(op_case, "x").shape.back());
    case BP_OP_CONVOLUTION:
      return 2 * count_of(op_case, "y") * taps_of(op_case, "weight");
    case BP_OP_CONVOLUTION_BACKWARD_INPUT:
      return 2 * count_of(op_case, "grad_y") * taps_of(op_case, "weight");
    case BP_OP_CONVOLUTION_BACKWARD_WEIGHT:
      return 2 * count_of(op_case, "grad_y") * taps_of(op_case, "grad_weight");
    default:
      break;
  }
  if (op_case.op != BP_OP_SDPA && op_case.op != BP_OP_SDPA_BACKWARD) return 0;
  const auto width = static_cast<double>(tensor(op_case, "q").shape.back());
  const auto value_width = static_cast<double>(tensor(op_case, "v").shape.back());
  const bool is_forward = op_case.op == BP_OP_SDPA;
  return 2 * seen_pairs(op_case) * (is_forward ? width + value_width : 3 * width + 2 * value_width);
}

}  // namespace

Cost cost_of(const OpCase& op_case) {
  double results = 0;
  for (const TensorArgument& argument : op_case.tensors) {
    if (argument.role != Role::kInput) results += count_of(argument.shape);
  }
  Cost cost;
  for (const TensorArgument& argument : op_case.tensors) {
    const auto size = static_cast<double>(element_size(argument.dtype));
    double read = distinct_count(argument);
    if (is_looked_up(op_case, argument)) read = std::min(read, results);
    if (argument.role != Role::kOutput) cost.bytes_read += read * size;
    if (argument.role != Role::kInput) cost.bytes_written += count_of(argument.shape) * size;
    if (argument.role == Role::kInOut) cost.bytes_updated += read * size;
  }
  cost.flops = flops_of(op_case);
  return cost;
}

}  // namespace bp::conformance
