// What several runs of the same calls say of each other: whether the grades of single runs held.
#pragma once

#include "conformance/perf/grades.hpp"

namespace bp::conformance {

struct RowRuns {
  std::string id;
  std::vector<std::string> grades;  // What each run says: "A", "A or B", "not graded: ...".
  std::vector<double> fractions;
  bool has_changed = false;  // Two runs gave it two grades.

  // By how much the best run lies above the worst, as a share of the worst.
  double range() const;
};

struct Stability {
  size_t runs = 0;
  std::vector<RowRuns> rows;         // Those that each run has measured.
  size_t changed = 0;                // Rows.
  double graded = 0;                 // The share of all rows of all runs that have a grade.
  double range = 0, most_range = 0;  // The median over rows, and the largest.
};

Stability stability_of(const std::vector<PerfSummary>& runs);

// One summary of all: each call has the line of the run in the middle, of those that were not too
// noisy if there are any, or of the first one in which it failed; its uncertainty is at least two
// sigmas of what the runs differ by. The ceilings are those of the run whose mean lies in the
// middle.
PerfSummary middle_of(const std::vector<PerfSummary>& runs);

}  // namespace bp::conformance
