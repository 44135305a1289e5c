#include "conformance/perf/rows.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/shrink/changed_case.hpp"

namespace bp::conformance {
namespace {

struct Base {
  OpCase op_case;
  const char* group;
};

// Returns the base rows of all families by id. The cases that follow from them by rule are not
// needed.
std::map<std::string, Base> suite_rows() {
  std::map<std::string, Base> bases;
  for (const OpFamily& family : op_families()) {
    OpCases rows;
    family.add(rows);
    for (OpCase& row : rows) {
      std::string id = row.id();
      bases.emplace(std::move(id), Base{std::move(row), family.group});
    }
  }
  return bases;
}

// Gives the tensors data that differ between the two groups and that need rounding.
void randomize(OpCase& op_case, int64_t index_end) {
  for (TensorArgument& argument : op_case.tensors) {
    const FillKind kind = argument.fill.kind;
    if (argument.role == Role::kOutput || kind == FillKind::kUniform) continue;
    if (kind == FillKind::kIndex) {
      argument.fill = index_fill(index_end);
    } else {
      argument.fill = argument.dtype == BP_BOOL ? index_fill(2) : kRandom;
    }
    op_case.is_exact = false;
  }
}

void set_shapes(OpCase& op_case, const std::vector<PerfShape>& shapes) {
  std::map<std::string_view, size_t> used;
  for (const PerfShape& given : shapes) {
    size_t skipped = used[given.tensor]++;
    const auto found = std::ranges::find_if(op_case.tensors, [&](const TensorArgument& argument) {
      return argument.name == given.tensor && skipped-- == 0;
    });
    if (found == op_case.tensors.end()) {
      throw std::logic_error("no tensor " + std::string(given.tensor));
    }
    found->shape = given.shape;
  }
}

void set_attribute(OpCase& op_case, const Attribute& given) {
  const auto found = std::ranges::find(op_case.attributes, given.name, &Attribute::name);
  if (found == op_case.attributes.end()) {
    throw std::logic_error("no attribute " + std::string(given.name));
  }
  found->value = given.value;
}

PerfCall make_call(const PerfRow& row, bp_dtype dtype, const std::map<std::string, Base>& bases) {
  PerfCall call;
  const std::string name(op_info(row.op).name), text = dtype_text(dtype);
  call.id = "perf." + name + "." + row.what + "." + text;
  const auto base = bases.find("op." + name + "." + text + "." + row.base);
  if (base == bases.end()) {
    throw std::logic_error(call.id + ": the suite has no case " + row.base);
  }
  call.group = base->second.group;
  call.op_case = base->second.op_case;
  try {
    set_shapes(call.op_case, row.shapes);
    for (const Attribute& attribute : row.attributes) set_attribute(call.op_case, attribute);
  } catch (const std::logic_error& e) {
    throw std::logic_error(call.id + ": " + e.what());
  }
  randomize(call.op_case, row.index_end);
  infer_outputs(call.op_case);
  std::string reason;
  if (HostCall(call.op_case).check(&reason) != BP_OK) {
    throw std::logic_error(call.id + ": makes no legal call: " + reason);
  }
  return call;
}

}  // namespace

std::vector<PerfCall> perf_calls() {
  std::vector<PerfRow> rows;
  add_element_rows(rows);
  add_line_rows(rows);
  add_image_rows(rows);
  add_model_rows(rows);
  add_product_rows(rows);
  const std::map<std::string, Base> bases = suite_rows();
  std::vector<PerfCall> calls;
  std::string problems;
  for (const PerfRow& row : rows) {
    for (const bp_dtype dtype : row.dtypes) {
      try {
        calls.push_back(make_call(row, dtype, bases));
      } catch (const std::logic_error& e) {
        problems += (problems.empty() ? "" : "; ") + std::string(e.what());
      }
    }
  }
  if (!problems.empty()) throw std::logic_error(problems);
  return calls;
}

}  // namespace bp::conformance
