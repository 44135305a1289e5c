#include "conformance/cases/ops/op_oracles.hpp"

#include <algorithm>
#include <iterator>
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
    case BoundRule::kProduct:
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

// ---- Indices out of range -------------------------------------------------------------------- //

void spoil_indices(HostTensor& indices, int64_t extent, int64_t exception) {
  const bool is_i64 = indices.dtype == BP_I64;
  const int64_t least = is_i64 ? INT64_MIN + 1 : INT32_MIN;
  const int64_t wrong[] = {-1, extent, is_i64 ? int64_t{1} << 40 : INT32_MAX, least, -7};
  for (size_t i = 0; i < indices.data.size(); i += 2) {
    const int64_t index = wrong[i / 2 % std::size(wrong)];
    if (index != exception) indices.data[i] = DoubleDouble::from_int64(index);
  }
}

Array<int64_t> acting_indices(const CallData& data, std::string_view name, int64_t extent,
                              std::optional<int64_t> exception) {
  Array<int64_t> indices = data.indices(name);
  if (!data.has_attribute("bounds")) return indices;
  for (int64_t& index : indices.data) {
    if (index != exception) index = std::max<int64_t>(0, std::min(index, extent - 1));
  }
  return indices;
}

OpCase with_bounds(OpCase row, OutOfRange rule, std::string_view name, int64_t extent,
                   int64_t exception) {
  const bool is_undefined = rule == OutOfRange::kUndefined;
  row.fill = is_undefined ? "unchecked" : "clamped";
  row.optional_part = "bounds";
  row.set("bounds", static_cast<int64_t>(rule));
  row.derive = [derive = row.derive, name, extent, exception](CallData& data) {
    if (derive != nullptr) derive(data);
    spoil_indices(data.tensor(name), extent, exception);
  };
  if (!is_undefined) return row;
  row.varies = false;
  row.reference = [reference = row.reference](const CallData& data, const Numerics& numerics) {
    std::vector<Expected> expected = reference(data, numerics);
    for (Expected& each : expected) each.also_right = [](int64_t, DoubleDouble) { return true; };
    return expected;
  };
  return row;
}

}  // namespace bp::conformance
