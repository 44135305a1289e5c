#include "conformance/perf/stability.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::conformance {
namespace {

PerfSummary run_of(double first, double second) {
  std::vector<PerfLine> lines;
  for (const auto& [id, fraction] : {std::pair("perf.a", first), std::pair("perf.b", second)}) {
    PerfLine line;
    line.id = id;
    line.seconds.median = 1;
    line.fraction = fraction;
    set_grades(line);
    lines.push_back(line);
  }
  return summarize_perf(std::move(lines), {});
}

TEST(Stability, CountsRowsThatTwoRunsGradeDifferently) {
  const Stability near = stability_of({run_of(0.9, 0.7), run_of(0.9, 0.81), run_of(0.9, 0.79)});
  EXPECT_EQ(near.changed, 0u);
  EXPECT_EQ(near.rows[1].grades, (std::vector<std::string>{"B", "A or B", "A or B"}));
  EXPECT_NEAR(near.graded, 4 / 6.0, 1e-12);
  const Stability other = stability_of({run_of(0.9, 0.7), run_of(0.9, 0.95), run_of(0.9, 0.75)});
  EXPECT_EQ(other.changed, 1u);
  EXPECT_TRUE(other.rows[1].has_changed);
  EXPECT_EQ(other.graded, 1);
}

TEST(Stability, WidensTheIntervalByTwoSigmasOfTheRuns) {
  const PerfSummary apart = middle_of({run_of(0.9, 0.7), run_of(0.9, 0.55), run_of(0.9, 0.9)});
  EXPECT_EQ(apart.lines[0].grade_text(), "A");
  EXPECT_EQ(apart.lines[1].grade_text(), "not graded: noise 72 %");
  EXPECT_NEAR(apart.lines[1].uncertainty.runs, 2 * 1.4826 * std::log(0.7 / 0.55), 1e-12);
}

TEST(Stability, IsNotMovedByOneRunThatWentWrong) {
  const PerfSummary middle =
      middle_of({run_of(0.9, 0.7), run_of(0.9, 0.04), run_of(0.9, 0.71), run_of(0.9, 0.69)});
  EXPECT_EQ(middle.lines[1].grade_text(), "B");
}

TEST(Stability, LeavesOutRunsThatWereTooNoisy) {
  std::vector<PerfSummary> runs = {run_of(0.9, 0.7), run_of(0.9, 0.3), run_of(0.9, 0.4)};
  for (size_t run : {1, 2}) runs[run].lines[1].uncertainty.scatter = HUGE_VAL;
  EXPECT_EQ(middle_of(runs).lines[1].grade_text(), "B");
  runs[0].lines[1].uncertainty.scatter = HUGE_VAL;
  EXPECT_EQ(middle_of(runs).ungraded, 1u);
}

TEST(Stability, HasTheRangeOfEachRow) {
  const Stability stability = stability_of({run_of(0.9, 0.7), run_of(0.9, 0.81), run_of(0.9, 0.7)});
  EXPECT_EQ(stability.runs, 3u);
  ASSERT_EQ(stability.rows.size(), 2u);
  EXPECT_EQ(stability.rows[1].grades.size(), 3u);
  EXPECT_NEAR(stability.most_range, 0.81 / 0.7 - 1, 1e-12);
  EXPECT_NEAR(stability.range, stability.most_range / 2, 1e-12);
}

TEST(Stability, GivesEachCallTheRunInTheMiddle) {
  const PerfSummary middle = middle_of({run_of(0.9, 0.7), run_of(0.95, 0.81), run_of(0.85, 0.75)});
  EXPECT_EQ(middle.lines[0].fraction, 0.9);
  EXPECT_EQ(middle.lines[1].fraction, 0.75);
  EXPECT_EQ(middle.between, 2u);
}

TEST(Stability, KeepsAFailureOfOneRun) {
  std::vector<PerfSummary> runs = {run_of(0.9, 0.7), run_of(0.9, 0.7), run_of(0.9, 0.7)};
  runs[2].lines[1].result.outcome = Outcome::kFail;
  const PerfSummary middle = middle_of(runs);
  EXPECT_EQ(middle.failed, 1u);
  EXPECT_EQ(stability_of(runs).rows.size(), 1u);
}

}  // namespace
}  // namespace bp::conformance
