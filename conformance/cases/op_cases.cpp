// All op cases: the lists of the families, each row with the body that runs it.
#include <algorithm>
#include <memory>
#include <set>

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/large/large_rows.hpp"
#include "conformance/cases/op_parts.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/ops/op_long_sums.hpp"
#include "conformance/cases/rules/bad_input_cases.hpp"
#include "conformance/cases/rules/buffer_cases.hpp"
#include "conformance/cases/rules/declarations.hpp"
#include "conformance/cases/rules/gradient_cases.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

bool is_empty(const OpCase& op_case) {
  for (const TensorArgument& argument : op_case.tensors) {
    if (element_count(argument.shape) == 0) return true;
  }
  return false;
}

// Returns the tags that a right result proves: values, memory, determinism, and the tags of special
// tensors.
std::vector<std::string> tags_of(const OpCase& op_case) {
  std::vector<std::string> tags = {"KERNEL-8", "KERNEL-9", "KERNEL-6"};
  if (op_case.layout != "dense") tags.emplace_back("TENSOR-1");
  if (op_case.layout.find("offset") != std::string::npos) tags.emplace_back("HEAP-2");
  if (is_empty(op_case)) tags.emplace_back("TENSOR-2");
  const auto shares_bytes = [](const TensorArgument& argument) {
    return is_packed(argument.dtype);
  };
  if (std::ranges::any_of(op_case.tensors, shares_bytes)) {
    tags.insert(tags.end(), {"DTYPE-2", "DTYPE-3"});
  }
  for (const Attribute& attribute : op_case.attributes) {
    if (!std::holds_alternative<bp_scalar>(attribute.value)) continue;
    tags.emplace_back("TENSOR-6");
    break;
  }
  return tags;
}

Case make_entry(OpCase op_case, Tier tier, const char* group) {
  Case entry;
  entry.id = op_case.id();
  entry.tags = tags_of(op_case);
  entry.tier = tier;
  entry.group = group;
  entry.op = op_case.op;
  entry.dtype = op_case.dtype;
  const auto shared = std::make_shared<const OpCase>(std::move(op_case));
  entry.run = [shared](Context& t) { run_op_case(t, *shared); };
  entry.op_case = shared;
  return entry;
}

// A large call has its own body, which makes the data piece by piece.
Case make_large_entry(LargeCall call, const char* group) {
  Case entry = make_entry(call.period, call.tier, group);
  entry.op_case = nullptr;
  const auto shared = std::make_shared<const LargeCall>(std::move(call));
  entry.run = [shared](Context& t) { run_large_call(t, *shared); };
  return entry;
}

// Adds all cases but the gradients. The cases that a rule makes for an op depend only on the rows
// of this op.
void add_calls(std::vector<Case>& cases, OpCases rows, const char* group) {
  add_kernel_rules(cases, rows, group);
  add_plan_rule(cases, rows, group);
  add_acc_operand_rule(cases, rows, group);
  add_link_rules(cases, rows, group);
  add_layout_rule(cases, rows, group);
  add_edge_rule(cases, rows, group);
  add_flight_rules(cases, rows, group);
  add_launch_rules(cases, rows, group);
  add_workspace_rule(cases, rows, group);
  add_graph_rule(cases, rows, group);
  add_declaration_cases(cases, rows);
  add_bad_input_cases(cases, rows);
  add_spec_rule_cases(cases, rows);
  add_foreign_buffer_cases(cases, rows);
  for (LongSum& sum : long_sums(rows)) {
    cases.push_back(make_entry(std::move(sum.op_case), sum.tier, group));
  }
  for (LargeCall& call : large_calls(rows)) {
    cases.push_back(make_large_entry(std::move(call), group));
  }
  for (LargeCall& call : flagged_calls(rows)) {
    cases.push_back(make_large_entry(std::move(call), group));
  }
  add_rows_by_rule(rows);
  add_smoke_sample(rows);
  add_wait_rule(cases, rows, group);
  add_buffer_cases(cases, rows);
  for (OpCase& row : rows) {
    const Tier tier = row.is_smoke ? Tier::kSmoke : Tier::kQuick;
    cases.push_back(make_entry(std::move(row), tier, group));
  }
}

// Returns the ops of each family.
std::vector<std::set<uint32_t>> ops_of_families() {
  std::vector<std::set<uint32_t>> ops;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    std::set<uint32_t>& own = ops.emplace_back();
    for (const OpCase& row : rows) own.insert(row.op);
  }
  return ops;
}

bool has_word(std::string_view id, std::string_view word) {
  for (size_t begin = 0; begin <= id.size();) {
    const size_t end = std::min(id.find('.', begin), id.size());
    if (id.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::vector<OpPart> parts_of(std::string_view id) {
  static const std::vector<std::set<uint32_t>> kOps = ops_of_families();
  const bool is_gradient = id.starts_with("gradient.");
  std::vector<OpPart> parts;
  for (size_t family = 0; family < kOps.size(); ++family) {
    for (const uint32_t op : kOps[family]) {
      if (has_word(id, op_info(op).name)) parts.push_back({family, is_gradient ? 0 : op});
    }
  }
  return parts;
}

void add_op_part(std::vector<Case>& cases, const OpPart& part) {
  const OpFamily& family = op_families()[part.family];
  OpCases rows;
  family.add(rows);
  if (part.op == 0) return add_gradient_cases(cases, rows);
  std::erase_if(rows, [&](const OpCase& row) { return row.op != part.op; });
  add_calls(cases, std::move(rows), family.group);
}

void add_op_cases(std::vector<Case>& cases) {
  add_known_answers(cases);
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    add_gradient_cases(cases, rows);
    add_calls(cases, std::move(rows), family.group);
  }
}

}  // namespace bp::conformance
