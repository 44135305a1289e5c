// What measured calls come to: their roofs, fractions of them, grades, and the verdict.
//
//   roof      = max(memory, flops / peak of the dtype) slowdown + launch
//   memory    = 2 U / update + 2 p / copy + (R - U - p) / read + (W - U - p) / write,
//               p = min(R, W) - U
//   fraction  = roof / median
//
// R and W are the bytes that the cost model says are read and written, U those of them that are
// written where they were read. Those go at the rate of an op in place; as much as is both read and
// written otherwise at that of a copy, and the rest at that of a pure read or write. Each of these
// rates may be higher than that of the copy, and never counts as lower. The slowdown is by how much
// longer the yardstick of the side that binds took between the launches of the call than beside the
// ceilings; the launch is one of many that are submitted together, as the launches of calls are.
//
// A fraction has an uncertainty, and a grade only where the whole interval around it has one. What
// adds up to it stands in Uncertainty.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/perf/ceiling_passes.hpp"
#include "conformance/perf/spread.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

constexpr double kTooFast = 1.1;  // A fraction above it is a finding about the cost model.

// How far another run may find a call from where this one did, by what moves it: each as a
// difference of logarithms, which is a share of the fraction while it is small, that is exceeded
// once in 20 runs. They are independent, so that their squares add up (JCGM 100:2008, 5.1.2).
struct Uncertainty {
  double scatter = 0;  // Of the groups of launches; infinite on a busy machine.
  double drift = 0;    // Of the machine since the ceilings: a share of what the yardstick corrects.
  double ceilings = 0;  // Of the roof: how far passes differ; infinite if none confirms another.
  double runs = kBetweenRuns;  // What no run sees by itself; with --runs, what they differ by.

  double total() const;

  // Pages and threads lie elsewhere in each process. Between quiet runs the fractions of a call
  // differ by 1.8 % (one sigma, of 20 calls of a host of four processors).
  static constexpr double kBetweenRuns = 0.03;
};
// A yardstick is not slowed as each call is: so much of the correction by it is uncertain.
constexpr double kDriftShare = 0.25;
// Nothing is graded beyond this uncertainty: then the noise is more than what is measured.
constexpr double kMostUncertain = 0.5;

struct PerfLine {
  std::string id;
  std::string dtype;
  Result result;
  bool is_ceiling = false;

  // Of a call that was measured, else 0.
  Spread seconds;
  double bytes_read = 0, bytes_written = 0, bytes_updated = 0, flops = 0;

  // Of a call with a roof.
  double roof_s = 0;
  double fraction = 0;
  double slowdown = 1;  // Of the machine, while the call was measured.
  bool is_flops_bound = false;
  bool is_busy = false;  // Other work took processors away, or its own threads waited for one.
  Uncertainty uncertainty;
  // Of the interval around the fraction; '-' without a roof.
  char best_grade = '-', worst_grade = '-';

  bool has_roof() const { return fraction > 0; }
  // The interval that the fraction of another run lies in.
  double least() const;
  double most() const;
  // The interval has one grade, or two next to each other.
  bool is_graded() const { return has_roof() && best_grade == worst_grade && !is_too_noisy(); }
  bool is_between() const;
  // "A", "A or B", or "not graded" and the reason.
  std::string grade_text() const;
  bool is_too_noisy() const { return !(uncertainty.total() <= kMostUncertain); }

  bool is_measured() const { return !is_ceiling && seconds.median > 0 && is_right(); }
  bool is_right() const { return count_of(result.outcome) == Count::kPassed; }
  bool is_failed() const { return count_of(result.outcome) == Count::kFailed; }
  double bytes_per_s() const { return (bytes_read + bytes_written) / seconds.median; }
  double flops_per_s() const { return flops / seconds.median; }
};

// How steady the machine was while calls were measured.
struct MachineNoise {
  double slowdown = 1, most_slowdown = 1;  // The median over calls, and the largest.
  double uncertainty = 0;                  // The median over calls; infinite if half are busy.
  size_t busy = 0;                         // Calls between which processors were taken away.

  bool is_noisy() const { return uncertainty > kNoisy; }
  static constexpr double kNoisy = 0.1;
};

struct PerfSummary {
  Ceilings ceilings;
  std::vector<PerfLine> lines;       // Ceilings first.
  std::map<char, size_t> grades;     // Of calls with one grade.
  size_t between = 0, ungraded = 0;  // Calls with one of two grades, and those with none.
  size_t measured = 0, failed = 0, skipped = 0;  // Of calls; a failed ceiling is a failure as well.
  double mean_fraction = 0;  // Geometric, of calls with one grade or two; 0 where there is none.
  MachineNoise machine;
  std::vector<std::string> findings;

  bool has_roofs() const { return !grades.empty() || between + ungraded > 0; }
};

char grade_of(double fraction);
// Finds the grades of the interval.
void set_grades(PerfLine& line);

// The ceilings that the results of their cases hold.
void take_ceiling(const PerfLine& line, Ceilings& ceilings);

// The result of a case, with its roof and its grade under `ceilings`.
PerfLine make_line(const Case& which, const Result& result, const Ceilings& ceilings);

// Counts, and findings about the cost model.
PerfSummary summarize_perf(std::vector<PerfLine> lines, Ceilings ceilings);

// Up to `count` measured calls with the lowest fractions, the lowest first.
std::vector<const PerfLine*> slowest(const PerfSummary& summary, size_t count);

}  // namespace bp::conformance
