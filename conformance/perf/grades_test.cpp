#include "conformance/perf/grades.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/perf/perf_report.hpp"

namespace bp::conformance {
namespace {

Case perf_case(const char* id) {
  Case made;
  made.id = id;
  made.dtype = "f32";
  return made;
}

Result measured(double seconds, double read, double written, double flops = 0) {
  Result result;
  result.metrics = {{"median_s", seconds},
                    {"deviation_s", seconds / 100},
                    {"bytes_read", read},
                    {"bytes_written", written},
                    {"flops", flops}};
  return result;
}

Ceilings plain_ceilings() {
  Ceilings ceilings;
  ceilings.copy_bytes_per_s = 10e9;
  ceilings.read_bytes_per_s = 20e9;
  ceilings.write_bytes_per_s = 5e9;
  ceilings.flops_per_s["f32"] = 100e9;
  return ceilings;
}

TEST(Grades, PairReadsWithWritesAndTakeTheRestAtItsOwnRate) {
  // The copy of 2 GB takes 0.2 s, and the read of 1 GB more takes 0.05 s.
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.5, 2e9, 1e9), plain_ceilings());
  EXPECT_NEAR(line.roof_s, 0.25, 1e-12);
  EXPECT_NEAR(line.fraction, 0.5, 1e-12);
  EXPECT_EQ(line.grade_text(), "C");
  EXPECT_FALSE(line.is_flops_bound);
}

TEST(Grades, NeverTakeAPureWriteForSlowerThanACopy) {
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.1, 0, 1e9), plain_ceilings());
  EXPECT_NEAR(line.roof_s, 0.1, 1e-12);
}

TEST(Grades, TakeTheHigherOfMemoryAndProductsAndAddTheLaunch) {
  Ceilings ceilings = plain_ceilings();
  ceilings.launch_s = 1;  // A single launch, which counts for no roof because calls are launched in
                          // groups.
  ceilings.batched_launch_s = 0.01;
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.24, 1e6, 1e6, 20e9), ceilings);
  EXPECT_TRUE(line.is_flops_bound);
  EXPECT_NEAR(line.roof_s, 0.21, 1e-12);
  EXPECT_EQ(line.grade_text(), "A");
}

TEST(Grades, LowerTheRoofOfASlowMachine) {
  Ceilings ceilings = plain_ceilings();
  ceilings.copy_yardstick_s = 1e-3;
  Result result = measured(0.5, 2e9, 1e9);
  result.metrics["copy_yardstick_s"] = 1.5e-3;
  const PerfLine line = make_line(perf_case("perf.a"), result, ceilings);
  EXPECT_NEAR(line.slowdown, 1.5, 1e-12);
  EXPECT_NEAR(line.roof_s, 0.375, 1e-12);
}

TEST(Grades, TakeWhatIsUpdatedAtItsOwnRate) {
  Ceilings ceilings = plain_ceilings();
  ceilings.update_bytes_per_s = 15e9;
  Result result = measured(0.5, 2e9, 1e9);
  result.metrics["bytes_updated"] = 0.75e9;
  // The call moves 1.5 GB in place and 0.5 GB as a copy, and reads 1 GB more.
  EXPECT_NEAR(make_line(perf_case("perf.a"), result, ceilings).roof_s, 0.2, 1e-12);
}

TEST(Grades, NeedAnIntervalOnOneSideOfTheirLimits) {
  Result result = measured(0.25, 1e9, 1e9);  // 80 % of the roof.
  EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).grade_text(), "A or B");
  result = measured(0.24, 1e9, 1e9);  // 83 % of the roof, which is more than 3 % higher.
  EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).grade_text(), "A");
  result.metrics["scatter"] = 0.1;
  EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).grade_text(), "A or B");
  result.metrics["scatter"] = 0.4;
  const PerfLine noisy = make_line(perf_case("perf.a"), result, plain_ceilings());
  EXPECT_EQ(noisy.grade_text(), "not graded: noise 40 %");
  const PerfSummary summary = summarize_perf({noisy}, plain_ceilings());
  EXPECT_TRUE(summary.grades.empty());
  EXPECT_EQ(summary.ungraded, 1u);
  EXPECT_EQ(summary.between, 0u);
}

TEST(Grades, OfWhatLiesFarBelowSurviveNoise) {
  Result result = measured(10, 1e9, 1e9);
  result.metrics["scatter"] = 0.4;
  EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).grade_text(), "F");
  result.metrics["scatter"] = 0.6;  // A noise larger than the measured time counts as too noisy.
  EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).grade_text(),
            "not graded: noise 60 %");
}

TEST(Grades, AreAsUncertainAsWhatTheyStandOn) {
  Ceilings ceilings = plain_ceilings();
  ceilings.uncertainty = {{"copy", 0.01}, {"read", 0.2}, {"write", 0.9}};
  const auto of = [&](double read, double written) {
    return make_line(perf_case("perf.a"), measured(0.5, read, written), ceilings).uncertainty;
  };
  EXPECT_EQ(of(1e9, 1e9).ceilings, 0.01);
  EXPECT_EQ(of(2e9, 1e9).ceilings, 0.2);
  EXPECT_EQ(of(1e9, 2e9).ceilings, 0.9);
  ceilings.uncertainty["copy"] = HUGE_VAL;
  EXPECT_EQ(make_line(perf_case("perf.a"), measured(9, 1e9, 1e9), ceilings).grade_text(),
            "not graded: its ceiling did not settle");
}

TEST(Grades, AreAsUncertainAsTheCorrectionByTheYardstick) {
  Ceilings ceilings = plain_ceilings();
  ceilings.copy_yardstick_s = 1e-3;
  Result result = measured(0.5, 2e9, 1e9);
  for (const double now : {2e-3, 0.5e-3}) {
    result.metrics["copy_yardstick_s"] = now;
    const PerfLine line = make_line(perf_case("perf.a"), result, ceilings);
    EXPECT_NEAR(line.uncertainty.drift, kDriftShare * std::log(2), 1e-12);
    EXPECT_NEAR(line.uncertainty.total(), std::hypot(line.uncertainty.drift, 0.03), 1e-12);
  }
}

TEST(Grades, AreNotGivenWhereAPartTakesAsLongAsTheWhole) {
  Ceilings ceilings = plain_ceilings();
  ceilings.batched_launch_s = 1e-6;
  Result result = measured(0.5, 2e9, 1e9);
  result.metrics["copy_yardstick_s"] = 10e-3;
  for (const auto& [part, is_busy] : {std::pair(1.5e-3, false), std::pair(9e-3, true)}) {
    result.metrics["part_yardstick_s"] = part;
    const PerfLine line = make_line(perf_case("perf.a"), result, ceilings);
    EXPECT_EQ(line.is_busy, is_busy) << part;
    EXPECT_EQ(line.is_graded(), !is_busy) << part;
    take_ceiling(make_line(perf_case("perf.ceiling.copy"), result, ceilings), ceilings);
    EXPECT_EQ(std::isinf(ceilings.uncertainty_of("copy")), is_busy) << part;
  }
  ceilings.batched_launch_s = 1e-3;  // Such a time is expected on a device whose launches take that
                                     // long.
  EXPECT_FALSE(make_line(perf_case("perf.a"), result, ceilings).is_busy);
}

TEST(Grades, SayOnceThatTheMachineIsTooNoisyAndWhatToDo) {
  Result result = measured(0.5, 2e9, 1e9);
  result.metrics["is_busy"] = 1;
  const PerfLine busy = make_line(perf_case("perf.a"), result, plain_ceilings());
  EXPECT_EQ(busy.grade_text(), "not graded: busy machine");
  const PerfSummary summary = summarize_perf({busy, busy, busy}, plain_ceilings());
  EXPECT_EQ(summary.machine.busy, 3u);
  ASSERT_EQ(summary.findings.size(), 1u);
  for (const char* words : {"too noisy: 3 of 3", "taskset", "--min-time"}) {
    EXPECT_NE(summary.findings[0].find(words), std::string::npos) << summary.findings[0];
  }
}

TEST(Grades, HaveTheirLimits) {
  const std::pair<double, char> rows[] = {{0.83, 'A'}, {0.77, 'B'}, {0.58, 'C'},
                                          {0.38, 'D'}, {0.26, 'D'}, {0.24, 'F'}};
  for (const auto& [fraction, grade] : rows) {
    const Result result = measured(0.2 / fraction, 1e9, 1e9);
    EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).best_grade, grade)
        << fraction;
  }
}

TEST(Grades, AreNotGivenWithoutACeiling) {
  const Result result = measured(1, 1e9, 1e9, 1e9);
  Ceilings ceilings = plain_ceilings();
  ceilings.flops_per_s.clear();
  const PerfLine line = make_line(perf_case("perf.a"), result, ceilings);
  EXPECT_FALSE(line.has_roof());
  const PerfSummary summary = summarize_perf({line}, ceilings);
  ASSERT_EQ(summary.findings.size(), 1U);
  EXPECT_NE(summary.findings[0].find("no roof"), std::string::npos);
}

// JSON has no other way to write a number that is not finite than null, which is read as a NaN.
TEST(Grades, AreNotGivenForNumbersThatAreNone) {
  Result scattered = measured(0.5, 2e9, 1e9);
  scattered.metrics["scatter"] = std::nan("");
  const PerfLine unknown = make_line(perf_case("perf.a"), scattered, plain_ceilings());
  EXPECT_EQ(unknown.grade_text(), "not graded: its scatter is not known");
  EXPECT_EQ(unknown.best_grade, 'A');
  EXPECT_EQ(unknown.worst_grade, 'F');

  for (const char* name : {"median_s", "bytes_read", "bytes_written", "bytes_updated", "flops",
                           "copy_yardstick_s", "part_yardstick_s", "is_busy"}) {
    Result result = measured(0.5, 2e9, 1e9, 1e9);
    result.metrics[name] = std::nan("");
    Ceilings ceilings = plain_ceilings();
    ceilings.copy_yardstick_s = 1e-3;
    const PerfLine line = make_line(perf_case("perf.a"), result, ceilings);
    EXPECT_TRUE(std::isfinite(line.fraction) && std::isfinite(line.slowdown)) << name;
    const PerfSummary summary = summarize_perf({line}, ceilings);
    EXPECT_EQ(summary.measured, name == std::string("median_s") ? 0u : 1u) << name;
    EXPECT_TRUE(std::isfinite(summary.mean_fraction)) << name;
  }
}

TEST(Grades, HaveNoCeilingFromNumbersThatAreNone) {
  Ceilings ceilings;
  for (const char* name : {"copy", "read", "write", "update"}) {
    PerfLine line;
    line.id = "perf.ceiling." + std::string(name);
    line.is_ceiling = true;
    line.result.metrics["bytes_per_s"] = std::nan("");
    take_ceiling(line, ceilings);
  }
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.5, 2e9, 1e9), ceilings);
  EXPECT_FALSE(line.has_roof());
  EXPECT_EQ(line.best_grade, '-');
}

TEST(Grades, FindWhatIsFasterThanItsRoof) {
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.1, 1e9, 1e9), plain_ceilings());
  const PerfSummary summary = summarize_perf({line}, plain_ceilings());
  ASSERT_EQ(summary.findings.size(), 1U);
  EXPECT_NE(summary.findings[0].find("200 % of its roof"), std::string::npos);
}

TEST(Grades, AreNotGivenForWrongResults) {
  Result wrong = measured(0.1, 1e9, 1e9);
  wrong.outcome = Outcome::kFail;
  const PerfLine line = make_line(perf_case("perf.a"), wrong, plain_ceilings());
  EXPECT_FALSE(line.is_measured());
  const PerfSummary summary = summarize_perf({line}, plain_ceilings());
  EXPECT_EQ(summary.failed, 1U);
  EXPECT_EQ(perf_verdict(summary, {}, false).exit_code, kExitFailures);
}

TEST(Grades, OfNothingAreAVerdictOfTheirOwn) {
  Result refused;
  refused.outcome = Outcome::kNotSupported;
  const PerfSummary summary =
      summarize_perf({make_line(perf_case("perf.a"), refused, {})}, Ceilings());
  EXPECT_EQ(summary.skipped, 1U);
  EXPECT_EQ(perf_verdict(summary, {}, false).exit_code, kExitNothingRan);
}

TEST(Grades, TakeCeilingsFromTheirCases) {
  Ceilings ceilings;
  Result result;
  result.metrics = {{"bytes_per_s", 7e9}};
  take_ceiling(make_line(perf_case("perf.ceiling.read"), result, {}), ceilings);
  result.metrics = {{"flops_per_s", 3e9}};
  take_ceiling(make_line(perf_case("perf.ceiling.matmul.f32"), result, {}), ceilings);
  result.metrics = {{"bytes_per_s", 1e9}};
  result.outcome = Outcome::kFail;  // A failed case gives no ceiling.
  take_ceiling(make_line(perf_case("perf.ceiling.copy"), result, {}), ceilings);
  EXPECT_EQ(ceilings.read_bytes_per_s, 7e9);
  EXPECT_EQ(ceilings.flops_per_s["f32"], 3e9);
  EXPECT_EQ(ceilings.copy_bytes_per_s, 0);
}

}  // namespace
}  // namespace bp::conformance
