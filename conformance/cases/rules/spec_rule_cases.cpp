// Cases that break each rule that the spec has for an op. They change calls of the op's rows, and a
// second reading of the spec (spec_rules.hpp) decides which calls are legal. A new rule of the spec
// is tested with its first row. If no changed call breaks a rule, its case fails.
#include <algorithm>
#include <memory>
#include <set>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/rules/bad_input_cases.hpp"
#include "conformance/cases/rules/spec_bends.hpp"

namespace bp::conformance {
namespace {

// The most rows of an op; each has other optional tensors or ranks. Further rows only come in if
// they give an argument that no row before gives.
constexpr size_t kMostRows = 12;
constexpr size_t kMostFindings = 8;  // The most findings of a case; the others are only counted.

// Returns which arguments are given, the lengths of lists, the ranks, and which numbers are below
// 0.
std::string form_of(const OpCase& row) {
  std::string form;
  for (const TensorArgument& argument : row.tensors) {
    form += std::string(argument.name) + std::to_string(argument.shape.size()) + " ";
  }
  for (const Attribute& attribute : row.attributes) {
    const auto* list = std::get_if<Shape>(&attribute.value);
    const auto* number = std::get_if<double>(&attribute.value);
    form += std::string(attribute.name);
    if (list != nullptr) form += std::to_string(list->size());
    if (number != nullptr && *number < 0) form += "-";
    form += " ";
  }
  return form;
}

void every_rule_of_the_spec(Context& t, const OpCases& rows) {
  const uint32_t op = rows.front().op;
  SpecTrial trial(
      op, [op](const Frame& frame, std::string& text) { return check_call(op, frame, &text); });
  for (const OpCase& row : rows) {
    trial.run(row);
    if (trial.never_alone().empty()) break;
  }
  const std::vector<std::string>& findings = trial.findings();
  for (size_t i = 0; i < std::min(findings.size(), kMostFindings); ++i)
    t.add({findings[i], "", ""});
  if (findings.size() > kMostFindings) {
    t.add({"and " + std::to_string(findings.size() - kMostFindings) + " more", "", ""});
  }
  for (const SpecRule* rule : trial.untried()) {
    t.add({std::string("no call of this suite breaks '") + rule->text + "'", "", ""});
  }
  t.metric("calls", static_cast<double>(trial.call_count()));
}

}  // namespace

std::map<uint32_t, OpCases> rows_of_each_form(const OpCases& rows) {
  std::map<uint32_t, OpCases> chosen;
  std::set<std::string> forms;
  std::map<uint32_t, std::set<std::string_view>> given;
  const auto take = [&](const OpCase& row) {
    if (!is_plain(row)) return;
    OpCases& own = chosen[row.op];
    std::set<std::string_view>& names = given[row.op];
    const bool gives_more = std::ranges::any_of(row.tensors, [&](const TensorArgument& argument) {
      return !names.contains(argument.name);
    });
    if (own.size() >= kMostRows && !gives_more) return;
    if (!forms.insert(std::to_string(row.op) + " " + form_of(row)).second) return;
    for (const TensorArgument& argument : row.tensors) names.insert(argument.name);
    own.push_back(row);
  };
  for (const OpCase* row : widest_of_each_op(rows)) take(*row);
  for (const OpCase& row : rows) take(row);
  return chosen;
}

void add_spec_rule_cases(std::vector<Case>& cases, const OpCases& rows) {
  for (auto& [op, chosen] : rows_of_each_form(rows)) {
    if (chosen.empty()) continue;
    const auto shared = std::make_shared<const OpCases>(std::move(chosen));
    Case entry;
    entry.op = op;
    entry.id = "bad_input.every_rule_of_the_spec." + std::string(op_info(op).name);
    entry.tags = {"ERROR-1"};
    entry.group = "bad input";
    entry.run = [shared](Context& t) { every_rule_of_the_spec(t, *shared); };
    cases.push_back(std::move(entry));
  }
}

}  // namespace bp::conformance
