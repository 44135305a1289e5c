// What several runs of the same calls say of each other: whether grades are those of the backend,
// or of the moment.
#pragma once

#include "conformance/perf/grades.hpp"

namespace bp::conformance {

struct RowRuns {
  std::string id;
  std::string grades;  // One of each run, by its fraction alone.
  std::string held;    // The same, where a grade is held near its limits.
  std::vector<double> fractions;

  bool has_crossed() const { return grades.find_first_not_of(grades.front()) != grades.npos; }
  bool has_changed() const { return held.find_first_not_of(held.front()) != held.npos; }
  // By how much the best run lies above the worst, as a share of the worst.
  double range() const;
};

struct Stability {
  size_t runs = 0;
  std::vector<RowRuns> rows;         // Those that each run has graded.
  size_t crossed = 0;                // Rows that were on both sides of a limit.
  size_t changed = 0;                // Rows that were beyond it by more than a grade is held.
  double range = 0, most_range = 0;  // The median over rows, and the largest.
};

Stability stability_of(const std::vector<PerfSummary>& runs);

// One summary of all: each call has the line of the run in the middle, or of the first one in which
// it failed. The ceilings are those of the run whose mean lies in the middle.
PerfSummary middle_of(const std::vector<PerfSummary>& runs);

}  // namespace bp::conformance
