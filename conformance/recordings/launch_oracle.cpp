#include "conformance/recordings/launch_oracle.hpp"

#include <algorithm>
#include <set>

#include "conformance/cases/ops/op_families.hpp"
#include "conformance/shrink/candidates.hpp"

namespace bp::conformance {
namespace {

// Returns the name and dtype of each tensor; the tensors of a list count once.
template <typename Tensors>
std::set<std::pair<std::string_view, bp_dtype>> signature_of(const Tensors& tensors) {
  std::set<std::pair<std::string_view, bp_dtype>> signature;
  for (const auto& tensor : tensors) signature.emplace(tensor.name, tensor.dtype);
  return signature;
}

bool is_zero(const Attribute& attribute) {
  if (const auto* integer = std::get_if<int64_t>(&attribute.value)) return *integer == 0;
  if (const auto* number = std::get_if<double>(&attribute.value)) return *number == 0;
  if (const auto* list = std::get_if<Shape>(&attribute.value)) return list->empty();
  return false;
}

// Returns whether the launch has the case's attributes. An attribute that the case leaves out is
// zero in its call, and its oracle does not know it.
bool has_attributes(const OpCase& op_case, const RecordedLaunch& launch) {
  const auto find = [](const std::vector<Attribute>& all, std::string_view name) {
    return std::ranges::find(all, name, &Attribute::name);
  };
  for (const Attribute& own : op_case.attributes) {
    const auto given = find(launch.attributes, own.name);
    if (given == launch.attributes.end() || given->value.index() != own.value.index()) return false;
  }
  return std::ranges::all_of(launch.attributes, [&](const Attribute& given) {
    return is_zero(given) || find(op_case.attributes, given.name) != op_case.attributes.end();
  });
}

// Returns the case with the launch's call. Outputs are expected in the order of the case's tensors.
OpCase in_place_of(const OpCase& base, const RecordedLaunch& launch) {
  OpCase made = base;
  made.tensors.clear();
  made.is_exact = false;
  made.derive = nullptr;  // The data come from the recording.
  made.varies = false;
  made.fill = "recorded";
  std::set<std::string_view> done;
  for (const TensorArgument& own : base.tensors) {
    if (!done.insert(own.name).second) continue;
    for (const RecordedTensor& given : launch.tensors) {
      if (given.name != own.name) continue;
      made.tensors.push_back(
          {own.name, given.role, given.dtype, given.shape, Layout::kDense, Fill{}, ""});
    }
  }
  for (Attribute& own : made.attributes) {
    own.value = std::ranges::find(launch.attributes, own.name, &Attribute::name)->value;
  }
  return made;
}

}  // namespace

LaunchOracles::LaunchOracles() {
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (OpCase& row : rows) {
      if (!follows_call(row) || row.fails_on_device) continue;
      std::vector<OpCase>& known = by_op_[row.op];
      const bool is_known = std::ranges::any_of(known, [&](const OpCase& other) {
        return signature_of(other.tensors) == signature_of(row.tensors) &&
               std::ranges::equal(other.attributes, row.attributes,
                                  [](const Attribute& a, const Attribute& b) {
                                    return a.name == b.name && a.value.index() == b.value.index();
                                  });
      });
      if (!is_known) known.push_back(std::move(row));
    }
  }
}

std::optional<OpCase> LaunchOracles::case_of(const RecordedLaunch& launch) const {
  const auto known = by_op_.find(launch.op);
  if (known == by_op_.end()) return std::nullopt;
  for (const OpCase& each : known->second) {
    if (signature_of(each.tensors) != signature_of(launch.tensors)) continue;
    if (has_attributes(each, launch)) return in_place_of(each, launch);
  }
  return std::nullopt;
}

const LaunchOracles& launch_oracles() {
  static const LaunchOracles oracles;
  return oracles;
}

Verdict judge_launch(const OpCase& op_case, const std::vector<Elements>& inputs,
                     std::vector<OutputView> outputs, const bp_kernel* kernel) {
  CallData data(op_case, 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (data.tensors()[i].role != Role::kOutput) data.tensors()[i].data = inputs[i];
  }
  Observation seen;
  seen.kernel = kernel;
  seen.source = BP_KERNEL_NATIVE;
  seen.outputs = std::move(outputs);
  return judge(op_case, data, seen);
}

}  // namespace bp::conformance
