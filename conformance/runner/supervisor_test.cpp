// Tests whole runs over workers that behave as a script says (scripted_worker.hpp): which cases are
// charged, which failures are confirmed, and where a run ends.
#include "conformance/runner/supervisor.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "backplane/ops.h"
#include "conformance/tests/runs_fixture.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

TEST_F(Runs, GiveOneResultForEachSelectedCaseInTheirOrder) {
  on_case(4, "fail:values");
  options_.retries = 0;
  const RunReport report = run({4, 0, 2});
  ASSERT_EQ(report.finals.size(), 3u);
  EXPECT_EQ(report.finals[0].index, 4u);
  EXPECT_EQ(report.finals[1].index, 0u);
  EXPECT_EQ(report.finals[2].index, 2u);
  EXPECT_EQ(outcomes(report), "Fail Pass Pass");
  EXPECT_FALSE(report.finals[0].is_confirmed) << "nothing was repeated";
  ASSERT_FALSE(positions_.empty());
  EXPECT_EQ(positions_.back().done, 3u);
  EXPECT_EQ(positions_.back().total, 3u);
}

TEST_F(Runs, ConfirmAFailureAloneInAFreshWorker) {
  on_case(1, "fail:values");
  const RunReport report = run({0, 1, 2});
  EXPECT_EQ(outcomes(report), "Pass Fail Pass");
  EXPECT_TRUE(report.finals[1].is_confirmed);
  EXPECT_EQ(report.finals[1].attempt_count, 2);
  EXPECT_EQ(report.finals[0].attempt_count, 1) << "what passes is not repeated";
  EXPECT_EQ(seen_, (std::vector<size_t>{0, 1, 2, 1}));
  EXPECT_TRUE(positions_.back().is_confirming);
}

TEST_F(Runs, CallAFailureThatDoesNotRepeatAFlake) {
  on_case(0, "once:values");
  on_case(2, "once:tail");
  const RunReport report = run({0, 1, 2});
  EXPECT_EQ(outcomes(report), "Flake Pass Flake");
  EXPECT_EQ(result_of(report, 2).message, "Fail once, but not when it was repeated: it fails");
  EXPECT_EQ(result_of(report, 2).details.at("was"), "Fail");
  EXPECT_EQ(result_of(report, 2).details.at("was_cause"), "tail");
  EXPECT_FALSE(report.finals[0].is_confirmed);
}

TEST_F(Runs, BlameTheCaseThatRanBefore) {
  on_case(5, "after:stream.case_2:values");
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Pass Pass Pass Pass Pass Fail");
  const Result& blamed = result_of(report, 5);
  EXPECT_EQ(blamed.cause, "order");
  EXPECT_EQ(blamed.details.at("after"), "stream.case_2");
  EXPECT_EQ(blamed.message, "passes alone, fails after stream.case_2: it fails");
  EXPECT_TRUE(report.finals[5].is_confirmed);
}

TEST_F(Runs, KeepTheFailureOfAFreshProcessWhereItIsAnother) {
  on_case(1, "changes");
  const RunReport report = run({0, 1});
  EXPECT_EQ(outcomes(report), "Pass Fail");
  EXPECT_EQ(result_of(report, 1).cause, "attempt 2");
  EXPECT_TRUE(report.finals[1].is_confirmed);
}

TEST_F(Runs, GoOnBehindACrashInAnotherWorker) {
  on_case(1, "segfault:launch");
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Pass Crash Pass Pass Pass Pass");
  EXPECT_TRUE(report.finals[1].is_confirmed);
  EXPECT_NE(report.finals[0].attempt.pid, report.finals[2].attempt.pid);
}

TEST_F(Runs, ConfirmADeathBetweenTwoCasesByTheEndOfAWorkerOfItsOwn) {
  on_case(1, "dies_late");
  const RunReport report = run({0, 1, 2});
  EXPECT_EQ(outcomes(report), "Pass Crash Pass");
  EXPECT_TRUE(report.finals[1].is_confirmed);
}

TEST_F(Runs, EndAfterSoManyCrashes) {
  for (size_t i = 0; i < 4; ++i) on_case(i, "exit:1");
  options_.max_crashes = 2;
  options_.retries = 0;
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Crash Crash Skip Skip Skip Skip");
  EXPECT_EQ(result_of(report, 2).message,
            "not reached: the run ended after 2 crashes and hangs (--max-crashes)");
}

TEST_F(Runs, DoNotCountACrashThatIsExpected) {
  for (size_t i = 0; i < 3; ++i) on_case(i, "exit:1");
  options_.max_crashes = 2;
  options_.is_expected = [](const Case& which, const Result&) {
    return which.id != "stream.case_2";
  };
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Crash Crash Crash Pass Pass Pass");
  EXPECT_EQ(report.finals[0].attempt_count, 1) << "what is expected needs no confirmation";
  EXPECT_EQ(report.finals[2].attempt_count, 2);
}

TEST_F(Runs, EndAtTheFirstFailureIfAsked) {
  on_case(1, "fail:values");
  on_case(2, "fail:values");
  options_.fail_fast = true;
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Pass Fail Skip Skip Skip Skip");
  EXPECT_EQ(result_of(report, 5).message,
            "not reached: --fail-fast ended the run at stream.case_1");
}

TEST_F(Runs, TakeTwoRoundsThatDisagreeForAFlakeAndSayWhichTheyWere) {
  on_case(0, "differs:2:values");
  on_case(1, "fail:tail");
  options_.repeat = 4;
  const RunReport report = run({0, 1});
  EXPECT_EQ(outcomes(report), "Flake Fail");
  EXPECT_EQ(result_of(report, 0).message, "round 1: Pass; round 2: Fail: it fails")
      << "later rounds leave it as it is";
  EXPECT_EQ(report.finals[0].attempt_count, 4);
  EXPECT_EQ(result_of(report, 1).cause, "tail");
  EXPECT_TRUE(report.finals[1].is_confirmed);
}

TEST_F(Runs, DoNotRunAgainWhatAnEarlierRunHasSettled) {
  Final known{.index = 1, .attempt_count = 7, .is_confirmed = true};
  known.attempt.index = 1;
  known.attempt.result = {.outcome = Outcome::kFail, .cause = "earlier"};
  options_.known = {known};
  on_case(1, "exit:1");
  const RunReport report = run({0, 1, 2});
  EXPECT_EQ(outcomes(report), "Pass Fail Pass");
  EXPECT_EQ(result_of(report, 1).cause, "earlier");
  EXPECT_EQ(report.finals[1].attempt_count, 7);
  EXPECT_EQ(seen_, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(positions_.back().total, 2u);
}

TEST_F(Runs, EndAtOnceWhereTheBackendDoesNotLoad) {
  options_.session.setup.plugin = "no_hello:3";
  probed_ = run_batch(options_.session, cases_, {}, 1, [](const Attempt&) { return true; });
  ASSERT_TRUE(probed_.load_failure.has_value());
  const RunReport report = run({0, 1});
  ASSERT_TRUE(report.load_failure.has_value());
  EXPECT_EQ(outcomes(report), "Skip Skip");
  EXPECT_EQ(result_of(report, 0).message, "not reached: the backend does not load");
  EXPECT_TRUE(seen_.empty()) << "no case has an attempt";
}

TEST_F(Runs, EndWhereTheBackendLoadsNoMore) {
  options_.session.setup.plugin = "no_hello:3";  // The plugin loaded when it was probed, and does
                                                 // not load now.
  const RunReport report = run({0, 1});
  EXPECT_FALSE(report.load_failure.has_value());
  EXPECT_EQ(outcomes(report), "Skip Skip");
  EXPECT_EQ(result_of(report, 0).message,
            "not reached: the backend does not load any more: the process exited with code 3 while "
            "loading");
  ASSERT_EQ(report.process.size(), 1u) << "one finding, however often it was found";
  EXPECT_EQ(report.process[0].index, kLoad);
}

TEST_F(Runs, TellOnceWhatIsFoundAtEachUnload) {
  options_.session.setup.plugin = "bye_exit:9";
  options_.batch = 1;
  const RunReport report = run({0, 1, 2});
  EXPECT_EQ(outcomes(report), "Pass Pass Pass");
  ASSERT_EQ(report.process.size(), 1u);
  EXPECT_EQ(report.process[0].index, kUnload);
  EXPECT_EQ(report.process[0].result.message, "the process exited with code 9 after unloading");
}

TEST_F(Runs, TellOfARuleThatNoWorkerHadACallFor) {
  options_.session.setup.plugin = R"(bye:{"idle_rules":["x/fault: no call fits 'a'"]})";
  options_.batch = 1;
  const RunReport report = run({0, 1, 2});
  EXPECT_EQ(outcomes(report), "Pass Pass Pass");
  ASSERT_EQ(report.process.size(), 1u);
  EXPECT_EQ(report.process[0].result.outcome, Outcome::kFail);
  EXPECT_EQ(report.process[0].result.message,
            "x/fault: no call fits 'a'; no case of this run makes such a call");
}

TEST_F(Runs, SayNothingOfARuleThatMayHaveStruckInAWorkerThatDied) {
  options_.session.setup.plugin = R"(bye:{"idle_rules":["x/fault: no call fits 'a'"]})";
  options_.batch = 1;
  options_.retries = 0;
  on_case(1, "exit:3");
  EXPECT_TRUE(run({0, 1, 2}).process.empty());
}

TEST_F(Runs, TakeWhatIsFoundWhileLoading) {
  probed_.hello = {{"output_bytes", 12}, {"findings", json::array({"the locale changed"})}};
  const RunReport report = run({0});
  ASSERT_EQ(report.process.size(), 2u);
  EXPECT_EQ(report.process[0].result.message, "wrote 12 bytes to standard streams while loading");
  EXPECT_EQ(report.process[1].result.message, "while loading, the locale changed");
  EXPECT_EQ(report.process[1].result.tag, "ENTRY-4");
}

TEST_F(Runs, UseNoMoreCasesInAWorkerThanAsked) {
  options_.batch = 2;
  const RunReport report = run_all();
  std::map<int, int> per_worker;
  for (const Final& final : report.finals) ++per_worker[final.attempt.pid];
  EXPECT_EQ(per_worker.size(), 3u);
  for (const auto& [pid, count] : per_worker) EXPECT_EQ(count, 2);
}

TEST_F(Runs, RunEachCaseOnceWithSeveralWorkers) {
  options_.jobs = 3;
  on_case(3, "exit:1");
  const RunReport report = run_all();
  EXPECT_EQ(outcomes(report), "Pass Pass Pass Crash Pass Pass");
  EXPECT_EQ(std::multiset<size_t>(seen_.begin(), seen_.end()),
            (std::multiset<size_t>{0, 1, 2, 3, 3, 4, 5}));
}

TEST_F(Runs, EndWhereTheObserverCannotWrite) {
  on_attempt_ = [](const Attempt&) { throw std::runtime_error("the disk is full"); };
  const RunReport report = run_all();
  EXPECT_EQ(report.observer_failure, "the disk is full");
  EXPECT_EQ(outcomes(report), "Pass Skip Skip Skip Skip Skip");
  EXPECT_EQ(result_of(report, 1).message, "not reached: the disk is full");
}

TEST(Signatures, GroupByWhatFailedAndHow) {
  Case which;
  which.group = "stream";
  const Result tail{.outcome = Outcome::kFail, .cause = "tail", .tag = "STREAM-1"};
  Result other = tail;
  other.message = "another message";
  EXPECT_EQ(signature(which, tail), signature(which, other));
  other.cause = "values";
  EXPECT_NE(signature(which, tail), signature(which, other));
  other = tail;
  other.outcome = Outcome::kCrash;
  EXPECT_NE(signature(which, tail), signature(which, other));
  Case op = which;
  op.op = BP_OP_ADD;
  op.dtype = "f32";
  Case half = op;
  half.dtype = "f16";
  EXPECT_NE(signature(op, tail), signature(half, tail));
}

TEST(Signatures, AreAlikeWhereOutcomeAndCauseAre) {
  const Result fail{.outcome = Outcome::kFail, .message = "a", .cause = "tail"};
  EXPECT_TRUE(ended_alike(fail, {.outcome = Outcome::kFail, .message = "b", .cause = "tail"}));
  EXPECT_FALSE(ended_alike(fail, {.outcome = Outcome::kFail, .cause = "values"}));
  EXPECT_FALSE(ended_alike(fail, {.outcome = Outcome::kCrash, .cause = "tail"}));
}

}  // namespace
}  // namespace bp::conformance
