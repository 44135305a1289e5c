// Tests the second reading of the rules of the spec, and the calls that break them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backplane/host.h"
#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/cases/rules/bad_input_cases.hpp"
#include "conformance/cases/rules/spec_bends.hpp"

namespace bp::conformance {
namespace {

// Returns rows of ops that together have rules of every kind.
std::map<uint32_t, OpCases> some_rows() {
  std::map<uint32_t, OpCases> chosen;
  for (auto* add : {add_movement, add_selection, add_reduction, add_convolution, add_optimizer}) {
    OpCases rows;
    add(rows);
    chosen.merge(rows_of_each_form(rows));
  }
  std::erase_if(chosen, [](const auto& entry) {
    const uint32_t ops[] = {BP_OP_FILL, BP_OP_WHERE,       BP_OP_CAT,
                            BP_OP_AMAX, BP_OP_CONVOLUTION, BP_OP_SGD_STEP};
    return std::ranges::find(ops, entry.first) == std::end(ops);
  });
  return chosen;
}

void run_all(SpecTrial& trial, const OpCases& rows) {
  for (const OpCase& row : rows) trial.run(row);
}

TEST(SpecTrial, FindsNothingInTheChecksOfTheHost) {
  for (const auto& [op, rows] : some_rows()) {
    SpecTrial trial(op, [op = op](const Frame& frame, std::string& text) {
      return check_call(op, frame, &text);
    });
    run_all(trial, rows);
    EXPECT_EQ(trial.findings(), std::vector<std::string>()) << op_info(op).name;
    EXPECT_EQ(trial.untried().size(), 0u) << op_info(op).name;
    EXPECT_GT(trial.call_count(), 100u);
  }
}

// A check that forgets one rule must fail. The test forgets each rule in turn: all calls that break
// nothing else then pass the check.
TEST(SpecTrial, FindsEachRuleThatTheChecksForget) {
  size_t forgotten = 0;
  for (const auto& [op, rows] : some_rows()) {
    // These ops are slow, and their rules are like those of others.
    if (op == BP_OP_SGD_STEP || op == BP_OP_WHERE) continue;
    const SpecJudge judge(op);
    for (size_t rule = 0; rule < judge.rules().size(); ++rule) {
      bool is_met = false;
      SpecTrial trial(op, [&, op = op](const Frame& frame, std::string& text) {
        const auto breaches = judge.breaches(frame);
        const bool is_other = std::ranges::any_of(
            breaches, [&](const SpecJudge::Breach& breach) { return breach.rule != rule; });
        if (breaches.empty() || is_other) return check_call(op, frame, &text);
        is_met = true;
        return bp_status{BP_OK};
      });
      trial.run(rows.front());
      EXPECT_EQ(trial.findings().empty(), !is_met) << op_info(op).name << judge.rules()[rule].text;
      forgotten += is_met ? 1 : 0;
    }
  }
  EXPECT_GT(forgotten, 15u);  // The other rules follow from rules beside them.
}

bool has_finding(const SpecTrial& trial, std::string_view words) {
  return std::ranges::any_of(trial.findings(), [&](const std::string& finding) {
    return finding.find(words) != std::string::npos;
  });
}

TEST(SpecTrial, FindsRefusalsOfLegalCallsAndSentencesThatSayTooLittle) {
  const OpCases rows = some_rows().at(BP_OP_WHERE);
  SpecTrial strict(BP_OP_WHERE, [](const Frame&, std::string& text) {
    text = "where: a is too small; allowed: more";
    return bp_status{BP_INVALID_ARGUMENT};
  });
  strict.run(rows.front());
  EXPECT_TRUE(has_finding(strict, "no rule is broken"));

  SpecTrial terse(BP_OP_WHERE, [](const Frame& frame, std::string& text) {
    const bp_status status = check_call(BP_OP_WHERE, frame, &text);
    text = "where: bad argument";
    return status;
  });
  terse.run(rows.front());
  EXPECT_TRUE(has_finding(terse, "does not name the op and what is wrong"));
}

TEST(SpecTrial, FindsOutputsThatAreNotCompared) {
  const OpCases rows = some_rows().at(BP_OP_AMAX);
  SpecTrial trial(BP_OP_AMAX, [](const Frame& frame, std::string& text) {
    bp_op_output outputs[1];
    uint32_t count = 0;
    const bp_status status = bp_op_infer(BP_OP_AMAX, frame.data(), 1, outputs, &count);
    text = bp_error_text();
    return status;
  });
  trial.run(rows.front());
  EXPECT_TRUE(has_finding(trial, "the output follows from the arguments otherwise"));
}

TEST(SpecJudge, GivesTheWindowsOfAConvolution) {
  OpCase row;
  row.op = BP_OP_CONVOLUTION;
  row.input("x", BP_F16, {2, 6, 8, 9}, Fill{}).input("weight", BP_F16, {4, 3, 3, 3}, Fill{});
  row.output("y", BP_F32, {2, 4, 4, 5});
  row.set("stride", Shape{2, 1}).set("padding", Shape{1, 0, 1, 0}).set("dilation", Shape{1, 2});
  row.set("groups", int64_t{2});
  HostCall call(row);
  const SpecJudge judge(BP_OP_CONVOLUTION);
  EXPECT_TRUE(judge.breaches(call.frame()).empty());
  const auto outputs = judge.outputs(call.frame());
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].shape, (Shape{2, 4, 4, 5}));
  EXPECT_EQ(outputs[0].dtype, bp_dtype{BP_F32});  // The caller chooses the dtype.

  call.frame().set_integer("groups", 3);
  std::vector<std::string> broken;
  for (const auto& breach : judge.breaches(call.frame())) {
    broken.emplace_back(judge.rules()[breach.rule].text);
  }
  const std::vector<std::string> both = {"x.shape[1] == weight.shape[1] * groups",
                                         "weight.shape[0] % groups == 0"};
  EXPECT_EQ(broken, both);
}

}  // namespace
}  // namespace bp::conformance
