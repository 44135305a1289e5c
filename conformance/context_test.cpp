#include <gtest/gtest.h>

#include <stdexcept>

#include "conformance/case.hpp"

namespace bp::conformance {
namespace {

Result run(std::function<void(Context&)> body) {
  const Case which{.id = "test.case", .tags = {"STREAM-1", "ERROR-1"}, .run = std::move(body)};
  const Subject subject;
  Context context(subject, which, 1);
  return run_case(which, context);
}

TEST(RunCase, PassesABodyThatFindsNothing) {
  const Result result = run([](Context& t) { t.expect_eq(2 + 2, 4, "sum"); });
  EXPECT_EQ(result.outcome, Outcome::kPass);
}

TEST(RunCase, GoesOnAfterAFindingAndKeepsTheFirstAsMessage) {
  const Result result = run([](Context& t) {
    t.expect_eq(1u, 2u, "first");
    t.expect(false, "second");
  });
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.message, "first: got 1, expected 2");
  EXPECT_EQ(result.notes, std::vector<std::string>{"second"});
  EXPECT_EQ(result.tag, "STREAM-1");
}

TEST(RunCase, EndsAtAFailedRequirement) {
  bool was_reached = false;
  const Result result = run([&](Context& t) {
    t.require(false, "the gate opens");
    was_reached = true;
  });
  EXPECT_FALSE(was_reached);
  EXPECT_EQ(result.outcome, Outcome::kFail);
}

TEST(RunCase, DoesNotLetAnExcuseHideAFinding) {
  const Result result = run([](Context& t) {
    t.expect(false, "wrong");
    t.not_supported("no timer");
  });
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.message, "wrong");
}

TEST(RunCase, NeverCountsAFallbackAsAPass) {
  EXPECT_EQ(run([](Context& t) { t.fallback("host"); }).outcome, Outcome::kFallback);
  const Result wrong = run([](Context& t) {
    t.fallback("host");
    t.expect(false, "its values");
  });
  EXPECT_EQ(wrong.outcome, Outcome::kFail);
}

TEST(RunCase, TellsADefectOfTheSuiteFromAnExceptionOfTheBackend) {
  EXPECT_EQ(run([](Context&) { throw std::logic_error("no oracle"); }).outcome,
            Outcome::kHarnessError);
  const Result thrown = run([](Context&) { throw std::runtime_error("boom"); });
  EXPECT_EQ(thrown.outcome, Outcome::kFail);
  EXPECT_EQ(thrown.cause, "exception");
  EXPECT_EQ(run([](Context&) { throw 7; }).outcome, Outcome::kFail);
}

TEST(RunCase, KeepsTheTagAndTheCauseOfAFinding) {
  const Result result = run([](Context& t) {
    t.fail(Finding{"element 63 is garbage", "tail", "KERNEL-9"});
  });
  EXPECT_EQ(result.cause, "tail");
  EXPECT_EQ(result.tag, "KERNEL-9");
}

TEST(CaseSeed, DependsOnTheCaseAndOnTheSeed) {
  EXPECT_EQ(case_seed("a", 1), case_seed("a", 1));
  EXPECT_NE(case_seed("a", 1), case_seed("b", 1));
  EXPECT_NE(case_seed("a", 1), case_seed("a", 2));
}

TEST(Outcomes, HaveNamesThatLeadBack) {
  for (int i = 0; i <= static_cast<int>(Outcome::kHarnessError); ++i) {
    Outcome back = Outcome::kHarnessError;
    ASSERT_TRUE(outcome_from_name(outcome_name(static_cast<Outcome>(i)), back));
    EXPECT_EQ(static_cast<int>(back), i);
  }
  Outcome none;
  EXPECT_FALSE(outcome_from_name("Passed", none));
}

}  // namespace
}  // namespace bp::conformance
