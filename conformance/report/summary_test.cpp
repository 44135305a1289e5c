#include "conformance/report/summary.hpp"

#include <gtest/gtest.h>

#include "conformance/report/files.hpp"
#include "conformance/report/page.hpp"

namespace bp::conformance {
namespace {

class Summaries : public testing::Test {
 protected:
  Summaries() {
    report_.hello = nlohmann::json::object();
    for (size_t i = 0; i < cases_.size(); ++i) {
      Final final;
      final.index = i;
      final.attempt.index = i;
      report_.finals.push_back(final);
    }
  }

  static CaseList make_cases() {
    std::vector<Case> all(4);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].id = "stream.case_" + std::to_string(i);
      all[i].group = "stream";
      all[i].tags = {"STREAM-" + std::to_string(i / 2)};
      all[i].run = [](Context&) {};
    }
    return CaseList(std::move(all));
  }

  void set(size_t index, Outcome outcome, const char* cause = "", const char* tag = "STREAM-0") {
    report_.finals[index].attempt.result = {
        .outcome = outcome, .message = "m <&>", .cause = cause, .tag = tag};
  }

  Summary summarize_all() { return summarize(header_, cases_, report_, waivers_); }

  CaseList cases_ = make_cases();
  RunHeader header_{.plugin = "./x.so"};
  RunReport report_;
  Waivers waivers_;
};

TEST_F(Summaries, AreCleanBelowTierFullAndConformantAtIt) {
  EXPECT_EQ(summarize_all().verdict, "CLEAN at tier quick");
  EXPECT_EQ(summarize_all().exit_code, kExitOk);
  header_.tier = Tier::kFull;
  EXPECT_EQ(summarize_all().verdict, "CONFORMANT");
  set(0, Outcome::kSkip);
  EXPECT_EQ(summarize_all().verdict, "CLEAN at tier full");
  header_.is_whole_tier = false;
  EXPECT_EQ(summarize_all().verdict, "CLEAN at tier full, of the selected cases");
}

TEST_F(Summaries, GroupFailuresOfOneSignatureAndPutTheLargestFirst) {
  set(0, Outcome::kCrash, "crash");
  set(1, Outcome::kFail, "tail");
  set(2, Outcome::kFail, "tail");
  const Summary summary = summarize_all();
  ASSERT_EQ(summary.failures.size(), 2u);
  EXPECT_EQ(summary.failures[0].members.size(), 2u);
  EXPECT_EQ(summary.failures[0].title(), "STREAM-0 tail");
  EXPECT_EQ(summary.verdict, "NOT CONFORMANT (2 wrong, 1 unstable)");
  EXPECT_EQ(summary.exit_code, kExitFailures);
  EXPECT_EQ(summary.passed, 1u);
  EXPECT_EQ(summary.failed, 3u);
  EXPECT_EQ(summary.tags.at("STREAM-1").right, 1u);
}

TEST_F(Summaries, TellFalseDeclarationsFromWrongResults) {
  set(0, Outcome::kFail, "declaration");
  EXPECT_EQ(summarize_all().exit_code, kExitDeclaration);
  set(1, Outcome::kFail, "tail");
  EXPECT_EQ(summarize_all().exit_code, kExitFailures);
}

TEST_F(Summaries, ChooseTheExitCodeThatComesFirst) {
  set(0, Outcome::kFail);
  set(1, Outcome::kHarnessError);
  EXPECT_EQ(summarize_all().exit_code, kExitHarness);
  report_.is_interrupted = true;
  EXPECT_EQ(summarize_all().exit_code, kExitInterrupted);
  report_.is_interrupted = false;
  for (size_t i = 0; i < cases_.size(); ++i) set(i, Outcome::kSkip);
  EXPECT_EQ(summarize_all().exit_code, kExitNothingRan);
}

TEST_F(Summaries, MissTheBudgetOnlyWhenAllIsRight) {
  header_.budget_seconds = 1;
  report_.wall_seconds = 2;
  EXPECT_EQ(summarize_all().exit_code, kExitTooSlow);
  set(0, Outcome::kFail);
  EXPECT_EQ(summarize_all().exit_code, kExitFailures);
}

TEST_F(Summaries, NeverCallAWaivedRunClean) {
  waivers_ = Waivers::parse("- {case: '*_0', kind: broken, reason: x, issue: 1}", "w", cases_);
  set(0, Outcome::kFail);
  const Summary summary = summarize_all();
  EXPECT_EQ(summary.verdict, "PASSED WITH WAIVERS at tier quick");
  EXPECT_EQ(summary.exit_code, kExitOk);
  EXPECT_EQ(summary.skipped, 1u);
}

TEST_F(Summaries, CountAFindingOutsideOfAnyCase) {
  Attempt attempt;
  attempt.index = kUnload;
  attempt.result = {.outcome = Outcome::kCrash, .message = "died"};
  report_.process.push_back(attempt);
  const Summary summary = summarize_all();
  EXPECT_EQ(summary.failed, 1u);
  EXPECT_EQ(summary.failures[0].label, "unload");
}

TEST_F(Summaries, GiveARepeatableLineWithEveryFlagThatChangesResults) {
  header_.seed = 7;
  header_.repro_flags = {"--option", "mutant=1 2"};
  set(1, Outcome::kFail, "order");
  report_.finals[1].attempt.result.details["after"] = "stream.case_0, stream.case_2";
  const Summary summary = summarize_all();
  EXPECT_EQ(repro_line(header_, summary.judged[1]),
            "bp-conformance run ./x.so --case stream.case_0 --case stream.case_2 "
            "--case stream.case_1 --seed 0x7 --option 'mutant=1 2'");
}

TEST_F(Summaries, EndThePageWithTheCounts) {
  set(0, Outcome::kFail, "tail");
  const std::string page = verdict_page(header_, report_, summarize_all(), {});
  EXPECT_NE(page.find("\n3 passed, 1 failed, 0 skipped\n"), std::string::npos) << page;
  EXPECT_NE(page.find("repro: bp-conformance run ./x.so --case stream.case_0"), std::string::npos);
}

TEST_F(Summaries, CountCallsOfOneOpAsOneReasonNotToRun) {
  for (size_t i = 0; i < 3; ++i) {
    set(i, Outcome::kNotSupported);
    report_.finals[i].attempt.result.message =
        "layout not claimed: add(a f32 rank " + std::to_string(i) + ") on npu:0\nmore";
  }
  const std::string page = verdict_page(header_, report_, summarize_all(), {});
  EXPECT_NE(page.find("3 layout not claimed: add\n"), std::string::npos) << page;
}

TEST_F(Summaries, WriteXmlAndTapThatNameEachCaseOnce) {
  set(0, Outcome::kFail, "tail");
  set(1, Outcome::kNotSupported);
  const Summary summary = summarize_all();
  const std::string xml = junit_xml(report_, summary);
  EXPECT_NE(xml.find("message=\"m &lt;&amp;&gt;\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("tests=\"4\" failures=\"1\" skipped=\"1\""), std::string::npos) << xml;
  const std::string tap = tap_text(summary);
  EXPECT_NE(tap.find("1..4\nnot ok 1 - stream.case_0\n"), std::string::npos) << tap;
  EXPECT_NE(tap.find("ok 2 - stream.case_1 # SKIP NotSupported"), std::string::npos) << tap;
}

}  // namespace
}  // namespace bp::conformance
