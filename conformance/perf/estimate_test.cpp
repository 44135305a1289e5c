// Simulates runs of calls with known fractions on machines that are drawn at random: the tests
// check what is graded, and whether two runs contradict each other.
#include "conformance/perf/estimate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "conformance/perf/grades.hpp"
#include "conformance/perf/preemption.hpp"
#include "conformance/perf/stability.hpp"
#include "conformance/perf/yardstick.hpp"

namespace bp::conformance {
namespace {

constexpr int kCalls = 200, kGroups = 120, kRuns = 5;
constexpr double kYardstick = 1e-3;

// The factors by which one moment slows a launch and a yardstick.
struct Moment {
  double call = 1, yardstick = 1;
  bool was_preempted = false;
};

class Machine {
 public:
  enum Kind { kQuiet, kDrifting, kBimodal, kBusy };
  Machine(Kind kind, uint64_t seed) : kind_(kind), random_(seed) {}

  double normal(double sigma) { return std::normal_distribution<double>(0, sigma)(random_); }
  double uniform(double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random_);
  }

  // `sensitivity` is the share of the slowdown of a yardstick that a call has too.
  Moment next(double sensitivity) {
    Moment moment{std::exp(normal(0.03)), std::exp(normal(0.03)), false};
    if (kind_ == kDrifting) {
      state_ = std::clamp(state_ + normal(0.004), 0.0, 0.3);
    } else if (kind_ == kBimodal) {
      if (uniform(0, 1) < 0.03) state_ = state_ > 0 ? 0 : 0.3;
    } else if (kind_ == kBusy && uniform(0, 1) < 0.97) {
      // A preemption takes one or several time slices of 4 ms, whatever the work is.
      moment.was_preempted = true;
      moment.call += 4 * std::floor(uniform(0, 4));
      moment.yardstick += 4 * std::floor(uniform(0, 4));
    }
    moment.call *= std::exp(state_ * sensitivity);
    moment.yardstick *= std::exp(state_);
    return moment;
  }

 private:
  Kind kind_;
  std::mt19937_64 random_;
  double state_ = 0;
};

struct Call {
  double fraction, sensitivity;
};

std::vector<Call> draw_calls() {
  Machine random(Machine::kQuiet, 7);
  std::vector<Call> calls(kCalls);
  for (Call& call : calls) {
    call = {std::exp(random.uniform(std::log(0.15), std::log(1.05))), random.uniform(0.6, 1.2)};
  }
  return calls;
}

// Returns a pass with the best of a few runs, and with the yardstick in its ratio to them.
Ceilings draw_pass(Machine& machine) {
  double best = HUGE_VAL;
  std::vector<double> ratios;
  for (int i = 0; i < 9; ++i) {
    const Moment moment = machine.next(1);
    best = std::min(best, moment.call);
    ratios.push_back(moment.yardstick / moment.call);
  }
  Ceilings pass;
  pass.copy_bytes_per_s = 1e9 / best;
  pass.copy_yardstick_s = kYardstick * best * spread_of(ratios).median;
  return pass;
}

PerfSummary draw_run(Machine& machine, const std::vector<Call>& calls, double slower = 1) {
  std::vector<Ceilings> passes;
  while (needs_another(passes)) passes.push_back(draw_pass(machine));
  const Ceilings ceilings = best_of_passes(passes);
  std::vector<PerfLine> lines;
  for (const Call& call : calls) {
    const double placed = slower * std::exp(machine.normal(0.01));  // The effect of where pages and
                                                                    // threads lie.
    GroupTimes times;
    for (int i = 0; i < kGroups; ++i) {
      const Moment moment = machine.next(call.sensitivity);
      times.groups.push_back({.seconds = 2e-3 / call.fraction * placed * moment.call,
                              .launches = 1,
                              .yardsticks = {kYardstick * moment.yardstick},
                              .was_preempted = moment.was_preempted});
    }
    times.mark_quiet();
    Result result;
    result.metrics = metrics_of(times, {kCopyYardstick});
    result.metrics["bytes_read"] = result.metrics["bytes_written"] = 1e6;
    Case which;
    which.id = "perf.call" + std::to_string(lines.size());
    lines.push_back(make_line(which, result, ceilings));
  }
  return summarize_perf(std::move(lines), ceilings);
}

std::vector<PerfSummary> draw_runs(Machine::Kind kind) {
  const std::vector<Call> calls = draw_calls();
  std::vector<PerfSummary> runs;
  for (uint64_t run = 0; run < kRuns; ++run) {
    Machine machine(kind, 100 + run);
    runs.push_back(draw_run(machine, calls));
  }
  return runs;
}

// Returns how many grades differ from the true grade of their call.
size_t wrong_grades(const std::vector<PerfSummary>& runs) {
  const std::vector<Call> calls = draw_calls();
  size_t wrong = 0;
  for (const PerfSummary& run : runs) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const PerfLine& line = run.lines[i];
      wrong += line.is_graded() && line.best_grade != grade_of(calls[i].fraction);
    }
  }
  return wrong;
}

// Returns the share of calls whose fraction in the next run lies within the intervals of both runs.
double coverage(const std::vector<PerfSummary>& runs) {
  size_t covered = 0, all = 0;
  for (size_t run = 1; run < runs.size(); ++run) {
    for (size_t i = 0; i < runs[run].lines.size(); ++i) {
      const PerfLine &before = runs[run - 1].lines[i], &after = runs[run].lines[i];
      const double both = std::hypot(before.uncertainty.total(), after.uncertainty.total());
      covered += std::fabs(std::log(after.fraction / before.fraction)) <= both;
      ++all;
    }
  }
  return static_cast<double>(covered) / static_cast<double>(all);
}

TEST(FiveRuns, OfAQuietMachineGradeNearlyAllAndAgree) {
  const std::vector<PerfSummary> runs = draw_runs(Machine::kQuiet);
  const Stability stability = stability_of(runs);
  EXPECT_EQ(stability.changed, 0u);
  EXPECT_GE(stability.graded, 0.8);
  EXPECT_GE(coverage(runs), 0.95);
  for (const PerfSummary& run : runs) EXPECT_FALSE(run.machine.is_noisy());
  EXPECT_LE(wrong_grades(runs), kCalls * kRuns / 100u);
}

TEST(FiveRuns, OfADriftingMachineDoNotContradictEachOther) {
  const std::vector<PerfSummary> runs = draw_runs(Machine::kDrifting);
  EXPECT_LE(stability_of(runs).changed, kCalls / 40u);
  EXPECT_GE(coverage(runs), 0.9);
}

TEST(FiveRuns, OfAMachineOfTwoSpeedsDoNotContradictEachOther) {
  const std::vector<PerfSummary> runs = draw_runs(Machine::kBimodal);
  EXPECT_LE(stability_of(runs).changed, kCalls / 40u);
  EXPECT_GE(coverage(runs), 0.9);
}

TEST(FiveRuns, BesideABusyNeighbourGradeNothingAndSaySo) {
  const std::vector<PerfSummary> runs = draw_runs(Machine::kBusy);
  EXPECT_EQ(stability_of(runs).changed, 0u);
  for (const PerfSummary& run : runs) {
    EXPECT_EQ(run.ungraded, static_cast<size_t>(kCalls));
    EXPECT_EQ(run.machine.busy, static_cast<size_t>(kCalls));
    EXPECT_TRUE(run.machine.is_noisy());
    EXPECT_TRUE(run.findings.back().find("too noisy") != std::string::npos);
  }
}

// Without intervals, the medians of the same runs contradict each other.
TEST(FiveRuns, WouldContradictEachOtherWithoutIntervals) {
  for (const auto kind : {Machine::kDrifting, Machine::kBimodal, Machine::kBusy}) {
    size_t crossed = 0;
    const Stability stability = stability_of(draw_runs(kind));
    for (const RowRuns& row : stability.rows) {
      std::set<char> grades;
      for (const double fraction : row.fractions) grades.insert(grade_of(fraction));
      crossed += grades.size() > 1;
    }
    EXPECT_GT(crossed, 2 * (kCalls / 40u)) << kind;
  }
}

TEST(Estimate, LeavesOutGroupsThatWerePreempted) {
  GroupTimes times;
  for (int i = 0; i < 60; ++i) {
    const bool was_preempted = i % 3 != 0;
    times.groups.push_back({.seconds = was_preempted ? 8e-3 : 1e-3,
                            .launches = 2,
                            .yardsticks = {1e-3},
                            .was_preempted = was_preempted});
  }
  times.mark_quiet();
  std::map<std::string, double> metrics = metrics_of(times, {"y"});
  EXPECT_EQ(metrics["median_s"], 1e-3);
  EXPECT_EQ(metrics["runs"], 40);
  EXPECT_EQ(metrics["busy_groups"], 40);
  EXPECT_EQ(metrics.count("is_busy"), 0u);
  times.groups.resize(57);  // 19 quiet groups are too few.
  EXPECT_EQ(metrics_of(times, {"y"}).at("is_busy"), 1);
}

TEST(Estimate, OfFewSlowLaunchesNeedsHalfOfThem) {
  GroupTimes times;
  for (int i = 0; i < 6; ++i) {
    times.groups.push_back(
        {.seconds = 2, .launches = 1, .yardsticks = {1e-3}, .was_preempted = i < 3});
  }
  times.mark_quiet();
  EXPECT_TRUE(times.has_quiet());
  times.groups[4].was_preempted = true;
  times.mark_quiet();
  EXPECT_FALSE(times.has_quiet());
}

TEST(Preemptions, AreTooManyBeyondWhatTheSystemNeeds) {
  EXPECT_FALSE(are_too_many_preemptions(0, 2e-3, 4));
  EXPECT_TRUE(are_too_many_preemptions(1, 2e-3, 4));
  EXPECT_FALSE(are_too_many_preemptions(50, 1, 4));
  EXPECT_TRUE(are_too_many_preemptions(300, 1, 4));
}

}  // namespace
}  // namespace bp::conformance
