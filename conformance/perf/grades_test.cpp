#include "conformance/perf/grades.hpp"

#include <gtest/gtest.h>

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
  // 2 GB as a copy, and 1 GB more read: 0.2 s and 0.05 s.
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.5, 2e9, 1e9), plain_ceilings());
  EXPECT_NEAR(line.roof_s, 0.25, 1e-12);
  EXPECT_NEAR(line.fraction, 0.5, 1e-12);
  EXPECT_EQ(line.grade, 'C');
  EXPECT_FALSE(line.is_flops_bound);
}

TEST(Grades, NeverTakeAPureWriteForSlowerThanACopy) {
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.1, 0, 1e9), plain_ceilings());
  EXPECT_NEAR(line.roof_s, 0.1, 1e-12);
}

TEST(Grades, TakeTheHigherOfMemoryAndProductsAndAddTheLaunch) {
  Ceilings ceilings = plain_ceilings();
  ceilings.launch_s = 1;  // Alone, which launches in groups are not.
  ceilings.batched_launch_s = 0.01;
  const PerfLine line = make_line(perf_case("perf.a"), measured(0.26, 1e6, 1e6, 20e9), ceilings);
  EXPECT_TRUE(line.is_flops_bound);
  EXPECT_NEAR(line.roof_s, 0.21, 1e-12);
  EXPECT_EQ(line.grade, 'A');
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
  // 1.5 GB in place, 0.5 GB as a copy, 1 GB more read.
  EXPECT_NEAR(make_line(perf_case("perf.a"), result, ceilings).roof_s, 0.2, 1e-12);
}

TEST(Grades, SayThatTheMachineIsNoisy) {
  Result result = measured(0.5, 2e9, 1e9);
  result.metrics["copy_yardstick_s_noise"] = 0.3;
  const PerfLine noisy = make_line(perf_case("perf.a"), result, plain_ceilings());
  const PerfSummary summary = summarize_perf({noisy}, plain_ceilings());
  EXPECT_EQ(summary.machine.noisy, 1u);
  ASSERT_EQ(summary.findings.size(), 1u);
  EXPECT_NE(summary.findings[0].find("the machine is noisy"), std::string::npos);
}

TEST(Grades, AreHeldNearTheirLimits) {
  EXPECT_EQ(held_grade('A', 0.75), 'A');
  EXPECT_EQ(held_grade('A', 0.7), 'B');
  EXPECT_EQ(held_grade('B', 0.87), 'B');
  EXPECT_EQ(held_grade('B', 0.9), 'A');
  EXPECT_EQ(held_grade('F', 0.1), 'F');
  EXPECT_EQ(held_grade('-', 0.61), 'B');
}

TEST(Grades, HaveTheirLimits) {
  const std::pair<double, char> rows[] = {{0.81, 'A'}, {0.79, 'B'}, {0.59, 'C'},
                                          {0.39, 'D'}, {0.26, 'D'}, {0.24, 'F'}};
  for (const auto& [fraction, grade] : rows) {
    const Result result = measured(0.2 / fraction, 1e9, 1e9);
    EXPECT_EQ(make_line(perf_case("perf.a"), result, plain_ceilings()).grade, grade) << fraction;
  }
}

TEST(Grades, AreNotGivenWithoutACeiling) {
  const Result result = measured(1, 1e9, 1e9, 1e9);
  Ceilings ceilings = plain_ceilings();
  ceilings.flops_per_s.clear();
  const PerfLine line = make_line(perf_case("perf.a"), result, ceilings);
  EXPECT_EQ(line.grade, '-');
  const PerfSummary summary = summarize_perf({line}, ceilings);
  ASSERT_EQ(summary.findings.size(), 1U);
  EXPECT_NE(summary.findings[0].find("no roof"), std::string::npos);
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
  result.outcome = Outcome::kFail;  // What failed is no ceiling.
  take_ceiling(make_line(perf_case("perf.ceiling.copy"), result, {}), ceilings);
  EXPECT_EQ(ceilings.read_bytes_per_s, 7e9);
  EXPECT_EQ(ceilings.flops_per_s["f32"], 3e9);
  EXPECT_EQ(ceilings.copy_bytes_per_s, 0);
}

}  // namespace
}  // namespace bp::conformance
