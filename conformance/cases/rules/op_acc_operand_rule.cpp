// Cases for kernels with the flag `takes_acc_operand`: an operand that is a tensor of one element
// in acc(x) must act as the same value in the call does. There is one case for each op with an
// operand, over its rows with an inline operand beside floats of 16 bits.
#include <algorithm>

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

bool is_dense(const OpCase& row) {
  return std::ranges::all_of(row.tensors,
                             [](const TensorArgument& t) { return t.layout == Layout::kDense; });
}

bool has_narrow_operand(const OpCase& row) {
  const bp_dtype x = row.tensors.front().dtype, last = row.tensors.back().dtype;
  const bool is_narrow = is_float(last) ? accumulator_of(last) != last : accumulator_of(x) != x;
  return is_narrow && std::ranges::any_of(row.attributes, [&](const Attribute& a) {
           return op_info(row.op).member(a.name).kind == "operand";
         });
}

void acc_operand_is_right(Context& t, const OpCases& rows) {
  for (const OpCase& row : rows) {
    if (!is_listed(t, row)) continue;
    const CallData data(row, t.seed());
    const Observation seen = observe_native(t, row, data, {.has_acc_operands = true});
    if ((seen.kernel->flags & BP_KERNEL_TAKES_ACC_OPERAND) == 0) {
      t.not_supported(std::string(seen.kernel->name) + " takes no operands in acc(x)");
    }
    const Verdict verdict = judge(row, data, seen);
    if (!verdict.is_right()) {
      t.fail({row.id() + ": " + verdict.message, verdict.cause, "KERNEL-11"});
    }
  }
}

}  // namespace

void add_acc_operand_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  OpCases chosen;
  for (const OpCase& row : rows) {
    if (!is_dense(row) || !has_narrow_operand(row)) continue;
    chosen.push_back(row);
    chosen.back().layout = "dense";  // The name of the layout also said that there is a scalar.
  }
  add_promise(cases, chosen, group, {"acc_operand_is_right", {"KERNEL-11"}, acc_operand_is_right});
}

}  // namespace bp::conformance
