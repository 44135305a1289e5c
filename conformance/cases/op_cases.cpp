// All op cases: the lists of the families, each row with the body that runs it.
#include <memory>

#include "conformance/cases/bad_input_cases.hpp"
#include "conformance/cases/buffer_cases.hpp"
#include "conformance/cases/declarations.hpp"
#include "conformance/cases/gradient_cases.hpp"
#include "conformance/cases/op_engine.hpp"
#include "conformance/cases/op_families.hpp"
#include "conformance/cases/rules.hpp"

namespace bp::conformance {
namespace {

constexpr OpFamily kFamilies[] = {
    {"element-wise", add_unary},
    {"element-wise", add_binary},
    {"element-wise", add_activation},
    {"movement", add_movement},
    {"embedding", add_embedding},
    {"selection", add_selection},
    {"selection", add_sort},
    {"reduction", add_reduction},
    {"matrix", add_matrix},
    {"convolution", add_convolution},
    {"pooling", add_pooling},
    {"normalization", add_normalization},
    {"normalization", add_layer_norm},
    {"attention", add_attention},
    {"attention", add_rope},
    {"loss", add_loss},
    {"random", add_random},
    {"optimizer", add_optimizer},
};

bool is_empty(const OpCase& op_case) {
  for (const TensorArgument& argument : op_case.tensors) {
    if (element_count(argument.shape) == 0) return true;
  }
  return false;
}

// What a right result proves: values, memory, determinism, and what is special about the tensors.
std::vector<std::string> tags_of(const OpCase& op_case) {
  std::vector<std::string> tags = {"KERNEL-8", "KERNEL-9", "KERNEL-6"};
  if (op_case.layout != "dense") tags.emplace_back("TENSOR-1");
  if (op_case.layout.find("offset") != std::string::npos) tags.emplace_back("HEAP-2");
  if (is_empty(op_case)) tags.emplace_back("TENSOR-2");
  for (const Attribute& attribute : op_case.attributes) {
    if (!std::holds_alternative<bp_scalar>(attribute.value)) continue;
    tags.emplace_back("TENSOR-3");
    break;
  }
  return tags;
}

Case make_entry(OpCase op_case, const char* group) {
  Case entry;
  entry.id = op_case.id();
  entry.tags = tags_of(op_case);
  entry.tier = op_case.is_smoke ? Tier::kSmoke : Tier::kQuick;
  entry.group = group;
  entry.op = op_case.op;
  entry.dtype = op_case.dtype;
  const auto shared = std::make_shared<const OpCase>(std::move(op_case));
  entry.run = [shared](Context& t) { run_op_case(t, *shared); };
  entry.op_case = shared;
  return entry;
}

}  // namespace

std::span<const OpFamily> op_families() { return kFamilies; }

void add_op_cases(std::vector<Case>& cases) {
  add_known_answers(cases);
  for (const OpFamily& family : kFamilies) {
    OpCases rows;
    family.add(rows);
    add_kernel_rules(cases, rows, family.group);
    add_plan_rule(cases, rows, family.group);
    add_declaration_cases(cases, rows);
    add_gradient_cases(cases, rows);
    add_bad_input_cases(cases, rows);
    add_rows_by_rule(rows);
    add_buffer_cases(cases, rows);
    for (OpCase& row : rows) cases.push_back(make_entry(std::move(row), family.group));
  }
}

}  // namespace bp::conformance
