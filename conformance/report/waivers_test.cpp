#include "conformance/report/waivers.hpp"

#include <gtest/gtest.h>

#include "conformance/cases/selection.hpp"

namespace bp::conformance {
namespace {

const CaseList& cases() {
  static const CaseList list = [] {
    std::vector<Case> all(2);
    all[0].id = "event.elapsed_is_positive";
    all[1].id = "stream.is_idle";
    for (Case& c : all) c.run = [](Context&) {};
    return CaseList(std::move(all));
  }();
  return list;
}

Waivers parse(const std::string& text) { return Waivers::parse(text, "waivers.yaml", cases()); }

Outcome apply(const std::string& kind, Outcome outcome) {
  const Waivers waivers =
      parse("- case: 'event.*'\n  reason: no timer\n  issue: 7\n  kind: " + kind);
  return waivers.apply(*cases().find("event.elapsed_is_positive"), {.outcome = outcome}).outcome;
}

TEST(Waivers, UnsupportedExcusesACleanRefusalAndNothingElse) {
  EXPECT_EQ(apply("unsupported", Outcome::kMissing), Outcome::kWaived);
  EXPECT_EQ(apply("unsupported", Outcome::kFail), Outcome::kFail);
  EXPECT_EQ(apply("unsupported", Outcome::kCrash), Outcome::kCrash);
  EXPECT_EQ(apply("unsupported", Outcome::kNotSupported), Outcome::kNotSupported);
}

TEST(Waivers, BrokenExcusesEveryFailureOfTheBackend) {
  for (const Outcome outcome :
       {Outcome::kFail, Outcome::kCrash, Outcome::kTimeout, Outcome::kMissing, Outcome::kFlake}) {
    EXPECT_EQ(apply("broken", outcome), Outcome::kWaived) << outcome_name(outcome);
  }
  EXPECT_EQ(apply("broken", Outcome::kHarnessError), Outcome::kHarnessError);
}

TEST(Waivers, APassUnderAWaiverIsStale) {
  EXPECT_EQ(apply("broken", Outcome::kPass), Outcome::kXPass);
  EXPECT_EQ(apply("unsupported", Outcome::kQualityWarning), Outcome::kXPass);
}

TEST(Waivers, LeaveOtherCasesAlone) {
  const Waivers waivers = parse("- {case: 'event.*', kind: unsupported, reason: no timer}");
  const Result result = waivers.apply(*cases().find("stream.is_idle"), {.outcome = Outcome::kFail});
  EXPECT_EQ(result.outcome, Outcome::kFail);
}

TEST(Waivers, RefuseWhatCannotBeMeant) {
  for (const char* text :
       {"- {case: 'event.*', kind: unsupported}",                            // The entry has no
                                                                             // reason.
        "- {case: 'event.*', kind: unsupported, reason: ''}",                // The entry is a
                                                                             // draft.
        "- {case: 'event.*', kind: broken, reason: slow}",                   // The entry has no
                                                                             // issue.
        "- {case: 'event.*', kind: flaky, reason: x}",                       // There is no such
                                                                             // kind.
        "- {case: 'event.*', kind: broken, reason: x, issue: 1, until: 2}",  // The entry has an
                                                                             // unknown key.
        "- {kind: unsupported, reason: x}",                                  // The entry names no
                                                                             // case.
        "- {case: 'memory.*', kind: unsupported, reason: x}",                // The entry is stale.
        "case: x", "- [", "- 7"}) {
    EXPECT_THROW(parse(text), UsageError) << text;
  }
  EXPECT_EQ(parse("").size(), 0u);
}

TEST(Waivers, DraftsAreRefusedUntilTheyAreWritten) {
  const std::string draft =
      draft_waivers({{"stream.is_idle", {.outcome = Outcome::kFail, .message = "x\ny"}}});
  EXPECT_NE(draft.find("stream.is_idle"), std::string::npos);
  EXPECT_THROW(parse(draft), UsageError);
}

TEST(Waivers, DraftsLeaveItToTheVendorToCallSomethingImpossible) {
  const std::string draft = draft_waivers({{"event.elapsed", {.outcome = Outcome::kMissing}}});
  EXPECT_NE(draft.find("kind: broken"), std::string::npos);
  EXPECT_EQ(draft.find("kind: unsupported"), std::string::npos);
}

}  // namespace
}  // namespace bp::conformance
