#include "conformance/cases/engine/op_facts.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "backplane/host.h"

namespace bp::conformance {

bool holds_numbers(const TensorArgument& argument) {
  return argument.role != Role::kOutput && is_float(argument.dtype) &&
         argument.fill.kind != FillKind::kIndex;
}

bool is_index(const OpCase& row, const TensorArgument& argument) {
  const OpInfo& info = op_info(row.op);
  std::string_view rule = info.member(argument.name).dtype;
  if (rule.starts_with("like(")) {
    rule = info.member(rule.substr(5, rule.find(')') - 5)).dtype;
  }
  return rule == "index";
}

bp_dtype first_dtype(const FrameMember& member) {
  std::string_view rule = member.dtype;
  if (rule.starts_with("set(")) rule.remove_prefix(4);
  return bp_dtype_from_name(std::string(rule.substr(0, rule.find_first_of(",)"))).c_str());
}

std::vector<bool> derived_tensors(const OpCase& row) {
  std::vector<bool> derived(row.tensors.size());
  if (!row.derive) return derived;
  OpCase plain = row;
  plain.derive = nullptr;
  CallData call(plain, 1);
  const std::vector<HostTensor> before = call.tensors();
  row.derive(call);
  // A zero of the other sign is a different element.
  const auto is_same = [](DoubleDouble a, DoubleDouble b) {
    return a == b && std::signbit(a.hi) == std::signbit(b.hi);
  };
  for (size_t i = 0; i < derived.size(); ++i) {
    derived[i] = !std::ranges::equal(before[i].data, call.tensors()[i].data, is_same);
  }
  return derived;
}

bool has_class(const OpCase& row, std::initializer_list<std::string_view> classes) {
  const std::string_view own = op_info(row.op).numerics;
  return std::ranges::any_of(classes, [&](std::string_view each) { return own.starts_with(each); });
}

}  // namespace bp::conformance
