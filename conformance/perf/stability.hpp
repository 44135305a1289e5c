// Compares several runs of the same calls, and shows whether the grades of single runs were stable.
#pragma once

#include "conformance/perf/grades.hpp"

namespace bp::conformance {

struct RowRuns {
  std::string id;
  std::vector<std::string> grades;  // The grade in each run: "A", "A or B", "not graded: ...".
  std::vector<double> fractions;
  bool has_changed = false;  // Two runs gave the call two grades.

  // Returns by how much the best run lies above the worst, as a share of the worst.
  double range() const;
};

struct Stability {
  size_t runs = 0;
  std::vector<RowRuns> rows;         // The rows that every run has measured.
  size_t changed = 0;                // The number of rows that have changed.
  double graded = 0;                 // The share of all rows of all runs that have a grade.
  double range = 0, most_range = 0;  // The median over rows, and the largest.
};

Stability stability_of(const std::vector<PerfSummary>& runs);

// Returns one summary of all runs. If a call failed in a run, its line comes from the first such
// run. Otherwise it comes from the run with the middle fraction, among the runs that were not too
// noisy, or among all if every run was too noisy. The uncertainty of a line is at least two sigmas
// of the differences between runs. The ceilings are those of the run with the middle mean.
PerfSummary middle_of(const std::vector<PerfSummary>& runs);

}  // namespace bp::conformance
