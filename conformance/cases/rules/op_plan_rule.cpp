// Cases for plans: a launch with a plan must be right, whatever arguments the host declares
// constant. There is one case for each op, over the first plain rows of each dtype.
#include <algorithm>
#include <set>

#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

using TensorNumbers = std::vector<uint32_t>;

// Returns sets of constant tensors: none, each input alone, and all inputs.
std::vector<TensorNumbers> constant_sets(const OpCase& row) {
  std::vector<TensorNumbers> sets = {{}};
  TensorNumbers all;
  uint32_t number = 0;  // Of the next tensor of the frame.
  for (const FrameMember& member : op_info(row.op).members) {
    if (member.dtype == "none") continue;
    const bool is_list = member.is_list();
    const uint32_t end = number + (is_list ? 0 : 1);
    for (const TensorArgument& argument : row.tensors) {
      if (argument.name != member.name) continue;
      if (argument.role == Role::kInput) all.push_back(number);
      ++number;
    }
    number = std::max(number, end);
  }
  for (const uint32_t each : all) sets.push_back({each});
  if (all.size() > 1) sets.push_back(all);
  return sets;
}

std::string listed(const TensorNumbers& numbers) {
  std::string text;
  for (const uint32_t number : numbers) text += " " + std::to_string(number);
  return text.empty() ? " none" : text;
}

struct Count {
  uint64_t plans = 0;
  std::string refusal;
};

void check_planned(Context& t, const OpCase& row, const TensorNumbers& constants, Count& count) {
  const CallData data(row, t.seed());
  const Planned planned = observe_planned(t, row, data, constants);
  const std::string where = row.id() + ", constant tensors" + listed(constants) + ": ";
  if (planned.kernel.empty()) {
    count.refusal = "the backend has no kernel for these calls";
    return;
  }
  if (!planned.has_plans) {
    t.not_supported(planned.kernel + " makes no plans");
  }
  const Observation& seen = planned.seen;
  if (seen.launch_status != BP_OK || seen.stream_status != BP_OK) {
    const bool is_launched = seen.launch_status == BP_OK;
    t.fail({where + (is_launched ? "the stream failed: " : "prepare, packing or launch failed: ") +
                bp_status_name(is_launched ? seen.stream_status : seen.launch_status) + ": " +
                seen.status_text + planned.refusal,
            is_launched ? "stream_failure" : "launch", "PLAN-1"});
  }
  if (!planned.refusal.empty()) {
    count.refusal = planned.kernel + ": " + planned.refusal;
    return;
  }
  ++count.plans;
  const Verdict verdict = judge(row, data, seen);
  if (!verdict.is_right()) t.fail({where + verdict.message, verdict.cause, "PLAN-1"});
}

void prepared_launch_is_right(Context& t, const OpCases& rows) {
  Count count;
  std::set<bp_dtype> seen;  // The dtypes of the first arguments.
  size_t turn = 0;
  for (const OpCase& row : rows) {
    if (!is_listed(t, row)) continue;
    std::vector<TensorNumbers> sets = constant_sets(row);
    // A plan is expensive on a device that compiles, so only one row of each dtype tests all sets.
    // The others take turns with none and all.
    if (!seen.insert(row.tensors.front().dtype).second) {
      sets = {turn++ % 2 == 0 ? sets.back() : sets.front()};
    }
    for (const TensorNumbers& constants : sets) check_planned(t, row, constants, count);
  }
  if (count.plans == 0) t.not_supported("no plan was made: " + count.refusal);
  t.metric("plans", static_cast<double>(count.plans));
}

}  // namespace

void add_plan_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(cases, rows, group,
              {"prepared_launch_is_right",
               {"PLAN-1", "PLAN-2", "PLAN-3", "PLAN-4"},
               prepared_launch_is_right});
}

}  // namespace bp::conformance
