#include "conformance/perf/cost.hpp"

#include <algorithm>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/rules/spec_rules.hpp"

namespace bp::conformance {
namespace {

double count_of(const Shape& shape) { return static_cast<double>(element_count(shape)); }

// Returns the number of elements with a place of their own. An axis of stride 0 counts as one
// element.
double distinct_count(const TensorArgument& argument) {
  const Placement placement = place(argument.layout, argument.shape);
  double count = 1;
  for (size_t axis = 0; axis < argument.shape.size(); ++axis) {
    if (argument.shape[axis] == 0) return 0;
    if (placement.strides[axis] != 0) count *= static_cast<double>(argument.shape[axis]);
  }
  return count;
}

}  // namespace

Cost cost_of(const OpCase& op_case) {
  double results = 0;
  for (const TensorArgument& argument : op_case.tensors) {
    if (argument.role != Role::kInput) results += count_of(argument.shape);
  }
  const SpecJudge spec(op_case.op);
  Cost cost;
  for (const TensorArgument& argument : op_case.tensors) {
    const double size = static_cast<double>(dtype_bits(argument.dtype)) / 8;
    double read = distinct_count(argument);
    if (argument.name == spec.looked_up()) read = std::min(read, results);
    if (argument.role != Role::kOutput) cost.bytes_read += read * size;
    if (argument.role != Role::kInput) cost.bytes_written += count_of(argument.shape) * size;
    if (argument.role == Role::kInOut) cost.bytes_updated += read * size;
  }
  cost.flops = spec.flops(HostCall(op_case).frame());
  return cost;
}

}  // namespace bp::conformance
