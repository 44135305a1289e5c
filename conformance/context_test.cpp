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

TEST(RunCase, NamesStatusesAndPrintsCountsAsNumbers) {
  const Result statuses = run([](Context& t) { t.expect_eq(bp_status{4}, BP_OK, "synchronize"); });
  EXPECT_EQ(statuses.message, "synchronize: got 4 (device lost), expected 0 (ok)");
  const Result counts = run([](Context& t) { t.expect_eq(int32_t{4}, 2, "nodes"); });
  EXPECT_EQ(counts.message, "nodes: got 4, expected 2");
}

TEST(RunCase, ListsAllTagsIfAFindingNamesNone) {
  const Result open = run([](Context& t) { t.expect(false, "order"); });
  EXPECT_EQ(open.tag, "STREAM-1");
  EXPECT_EQ(open.details.at(kTagsDetail), "STREAM-1, ERROR-1");
  const Result named = run([](Context& t) {
    t.add({"text", "", "ERROR-1"});
    t.add({"order", "", "STREAM-7"});
  });
  EXPECT_EQ(named.tag, "ERROR-1");
  EXPECT_FALSE(named.details.contains(kTagsDetail));
  EXPECT_EQ(named.notes, std::vector<std::string>{"order [STREAM-7]"});
  const Result right = run([](Context&) {});
  EXPECT_TRUE(right.details.empty());
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

TEST(RunCase, TellsALostDeviceAndFullMemoryFromAFailure) {
  const auto end_of = [](bp_status status) {
    return run([=](Context& t) { t.require_ok(status, "memory.copy"); });
  };
  EXPECT_EQ(end_of(BP_OK).outcome, Outcome::kPass);
  EXPECT_EQ(end_of(BP_DEVICE_LOST).outcome, Outcome::kDeviceLost);
  EXPECT_EQ(end_of(BP_OUT_OF_MEMORY).outcome, Outcome::kResourceError);
  EXPECT_EQ(end_of(BP_INTERNAL).outcome, Outcome::kFail);
  EXPECT_TRUE(end_of(BP_INTERNAL)
                  .message.starts_with(std::string("memory.copy: ") + bp_status_name(BP_INTERNAL)));
}

TEST(RunCase, WantsATextOfEachRefusal) {
  const auto refused = [](bp_status status) {
    return run([=](Context& t) {
      bp_error_clear();
      t.expect_refused(status, BP_INVALID_ARGUMENT, "allocate");
    });
  };
  const Result silent = refused(BP_INVALID_ARGUMENT);
  EXPECT_EQ(silent.outcome, Outcome::kFail);
  EXPECT_EQ(silent.message, "allocate: the call failed without an error text");
  EXPECT_EQ(silent.tag, "ERROR-1");
  const Result taken = refused(BP_OK);
  EXPECT_EQ(taken.notes.size(), 0u) << "a call that succeeds needs no text";
  EXPECT_NE(taken.message.find("allocate: got "), std::string::npos) << taken.message;
  const Result other = refused(BP_INTERNAL);
  EXPECT_EQ(other.notes, std::vector<std::string>{silent.message + " [ERROR-1]"})
      << "both are wrong";
}

TEST(RunCase, ListsAWarningOfACaseThatPasses) {
  const Result warned = run([](Context& t) {
    t.quality_warning("slow");
    t.quality_warning("large");
  });
  EXPECT_EQ(warned.outcome, Outcome::kQualityWarning);
  EXPECT_EQ(warned.message, "slow");
  EXPECT_EQ(warned.notes, std::vector<std::string>{"large"});
  const Result failed = run([](Context& t) {
    t.quality_warning("slow");
    t.expect(false, "wrong");
  });
  EXPECT_EQ(failed.outcome, Outcome::kFail);
  EXPECT_EQ(failed.message, "wrong");
  EXPECT_EQ(failed.notes, std::vector<std::string>{"slow"});
  EXPECT_EQ(run([](Context& t) {
              t.quality_warning("slow");
              t.fallback("host");
            }).outcome,
            Outcome::kFallback)
      << "a fallback is no pass, so that no warning makes it one";
}

TEST(RunCase, PutsTheEndBeforeTheFindings) {
  const Result failed = run([](Context& t) {
    t.expect(false, "first");
    t.fail("last");
  });
  EXPECT_EQ(failed.message, "last");
  EXPECT_EQ(failed.notes, std::vector<std::string>{"first"});
  const Result thrown = run([](Context& t) {
    t.expect(false, "first");
    throw std::runtime_error("boom");
  });
  EXPECT_EQ(thrown.message, "ended by an exception: boom");
  EXPECT_EQ(thrown.notes, std::vector<std::string>{"first"});
}

TEST(RunCase, KeepsMetricsAndDetailsOfACaseThatEndsEarly) {
  const Result result = run([](Context& t) {
    t.metric("margin", 0.5);
    t.metric("margin", 0.25);
    t.detail("kernel", "it");
    t.skip("enough");
  });
  EXPECT_EQ(result.outcome, Outcome::kSkip);
  EXPECT_EQ(result.metrics.at("margin"), 0.25);
  EXPECT_EQ(result.details.at("kernel"), "it");
}

TEST(Findings, ShowValuesAsNumbersAndStatusesByName) {
  struct Opaque {
    bool operator==(const Opaque&) const { return false; }
  };
  const auto message = [](const auto& got, const auto& want) {
    return run([&](Context& t) { t.expect_eq(got, want, "it"); }).message;
  };
  EXPECT_EQ(message(uint8_t{65}, uint8_t{66}), "it: got 65, expected 66") << "no letters";
  EXPECT_EQ(message(int8_t{-1}, int8_t{0}), "it: got -1, expected 0");
  EXPECT_EQ(message(std::string("a"), std::string("b")), "it: got a, expected b");
  EXPECT_EQ(message(Opaque{}, Opaque{}), "it: got another value, expected another value");
  EXPECT_EQ(message(bp_status{BP_OK}, BP_INTERNAL),
            "it: got 0 (" + std::string(bp_status_name(BP_OK)) + "), expected " +
                std::to_string(BP_INTERNAL) + " (" + bp_status_name(BP_INTERNAL) + ")");
}

TEST(Phases, StandBehindTheNameOfTheirPart) {
  const Case which{.id = "test.case", .run = [](Context& t) {
                     t.progress("setup");
                     t.begin_part("rank 2");
                     t.progress("launch");
                     t.begin_part("rank 3");
                     t.progress("sync");
                   }};
  std::vector<std::string> phases;
  const Subject subject;
  Context context(subject, which, 1, [&](std::string_view phase) { phases.emplace_back(phase); });
  static_cast<void>(run_case(which, context));
  EXPECT_EQ(phases, (std::vector<std::string>{"setup", "rank 2: launch", "rank 3: sync"}));
}

}  // namespace
}  // namespace bp::conformance
