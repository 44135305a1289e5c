#include "conformance/cases/ops/op_oracles.hpp"

#include <algorithm>
#include <stdexcept>

namespace bp::conformance {
namespace {

std::vector<bp_dtype> output_dtypes(const CallData& data) {
  std::vector<bp_dtype> dtypes;
  for (const HostTensor& tensor : data.tensors()) {
    if (tensor.role != Role::kInput) dtypes.push_back(tensor.dtype);
  }
  return dtypes;
}

// The bounds by a formula of the class, or by the propagation where the oracle has no formula.
Bounds function_bounds(const Known& known, const std::vector<bp_dtype>& dtypes) {
  Bounds bounds = known.formula ? known.formula(BoundRule::kFunction) : Bounds();
  if (!bounds.empty() || !known.propagated) return bounds;
  bounds = known.propagated();
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (!is_float(dtypes[i])) continue;
    for (double& bound : bounds[i]) bound += float_format(dtypes[i])->smallest_normal();
  }
  return bounds;
}

Sums bounds_by(BoundRule rule, const Known& known, const std::vector<bp_dtype>& dtypes) {
  switch (rule) {
    case BoundRule::kExact:
    case BoundRule::kChosen:
      return {Bounds(known.outputs.size()), {}};
    case BoundRule::kSum:
      return known.sums ? known.sums() : Sums();
    case BoundRule::kFunction:
      return {function_bounds(known, dtypes), {}};
    case BoundRule::kPropagated:
      return {known.propagated ? known.propagated() : Bounds(), {}};
    default:
      return {known.formula ? known.formula(rule) : Bounds(), {}};
  }
}

bool is_zero(const std::vector<double>& numbers) {
  return std::ranges::all_of(numbers, [](double x) { return x == 0; });
}

void add_carried(Expected& expected, const std::vector<double>& carried) {
  if (is_zero(carried)) return;
  expected.checks_bias = false;  // A number that was rounded shifts all results alike.
  expected.bound.resize(carried.size());
  for (size_t i = 0; i < carried.size(); ++i) expected.bound[i] += carried[i];
}

}  // namespace

std::vector<Expected> judged_by(const Judgement& judgement, const CallData& data, Known known) {
  const std::vector<bp_dtype> dtypes = output_dtypes(data);
  Sums found;
  if (std::ranges::any_of(dtypes, is_float)) {
    found = bounds_by(judgement.bound, known, dtypes);
    if (found.bounds.size() != known.outputs.size()) {
      throw std::logic_error("the oracle of " + std::string(op_info(data.op()).name) +
                             " knows nothing by which the class of the op judges");
    }
  }
  for (size_t i = 0; i < known.outputs.size(); ++i) {
    if (!is_float(dtypes[i])) continue;
    Expected& expected = known.outputs[i];
    expected.bound = std::move(found.bounds[i]);
    if (!found.magnitudes.empty()) expected.magnitude = std::move(found.magnitudes[i]);
    expected.sign_of_zero = judgement.checks_zero;
    expected.checks_bias = judgement.checks_bias && !known.is_one_sided;
    if (!known.carried.empty()) add_carried(expected, known.carried[i]);
  }
  if (judgement.bound == BoundRule::kChosen && known.is_tied) {
    known.outputs.back().also_right = known.is_tied;
  }
  return std::move(known.outputs);
}

std::vector<Expected> judged(const CallData& data, Known known) {
  return judged_by(judgement_of(data.op()), data, std::move(known));
}

}  // namespace bp::conformance
