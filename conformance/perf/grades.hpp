// Grades of measured calls: their roofs, the fractions of the roofs that they reach, and the
// summary.
//
//   roof      = max(memory, flops / peak of the dtype) slowdown + launch
//   memory    = 2 U / update + 2 p / copy + (R - U - p) / read + (W - U - p) / write,
//               p = min(R, W) - U
//   fraction  = roof / median
//
// R and W are the bytes that the cost model counts as read and as written. U of them are written
// where they were read: these count at the rate of an op in place. As many of the others as are
// both read and written, p, count at the rate of a copy, and the rest count at the rate of a pure
// read or write. A rate below that of the copy counts as the rate of the copy.
//
// The side that binds, memory or products, has a yardstick. The slowdown is the time of this
// yardstick between the launches of the call, divided by its time beside the ceilings. The launch
// is the time of one of many launches that are submitted together, as the launches of calls are.
//
// A fraction has an uncertainty, and a call has a grade only if the whole interval around its
// fraction has that grade. The parts of the uncertainty stand in Uncertainty.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/perf/ceiling_passes.hpp"
#include "conformance/perf/spread.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

constexpr double kTooFast = 1.1;  // A fraction above this is a finding about the cost model.

// How far the fraction of a call in another run may be from the fraction in this run, by cause.
// Each part is a difference of logarithms, which is a share of the fraction while it is small, and
// is exceeded once in 20 runs. The parts are independent, so their squares add up (JCGM 100:2008,
// 5.1.2).
struct Uncertainty {
  double scatter = 0;   // The scatter of the groups of launches; infinite on a busy machine.
  double drift = 0;     // The drift of the machine since the ceilings: a share of the correction by
                        // the yardstick.
  double ceilings = 0;  // The uncertainty of the roof: how far passes differ; infinite if no pass
                        // confirms another.
  double runs = kBetweenRuns;  // The uncertainty that no run sees by itself; with --runs, the
                               // difference between the runs.

  double total() const;

  // Each process places pages and threads differently. Between quiet runs the fractions of a call
  // differ by 1.8 % (one sigma, over 20 calls on a host with four processors).
  static constexpr double kBetweenRuns = 0.03;
};
// Calls do not slow down exactly as a yardstick does. This share of the correction is uncertain.
constexpr double kDriftShare = 0.25;
// A call with a higher uncertainty gets no grade, because its noise is larger than its time.
constexpr double kMostUncertain = 0.5;

struct PerfLine {
  std::string id;
  std::string dtype;
  Result result;
  bool is_ceiling = false;

  // The seconds of a call that was measured, else 0.
  Spread seconds;
  double bytes_read = 0, bytes_written = 0, bytes_updated = 0, flops = 0;

  // The seconds of the roof, if the call has one.
  double roof_s = 0;
  double fraction = 0;
  double slowdown = 1;  // The slowdown of the machine while the call was measured.
  bool is_flops_bound = false;
  bool is_busy = false;  // Other work took processors away, or a thread of the process waited for a
                         // processor.
  Uncertainty uncertainty;
  // The grades at the ends of the interval around the fraction; '-' if the call has no roof.
  char best_grade = '-', worst_grade = '-';

  bool has_roof() const { return fraction > 0; }
  // Return the ends of the interval in which the fraction of another run lies.
  double least() const;
  double most() const;
  // Returns whether the whole interval has one grade. is_between() returns whether it has two
  // grades that are next to each other.
  bool is_graded() const { return has_roof() && best_grade == worst_grade && !is_too_noisy(); }
  bool is_between() const;
  // Returns "A", "A or B", or "not graded" with the reason.
  std::string grade_text() const;
  bool is_too_noisy() const { return !(uncertainty.total() <= kMostUncertain); }

  bool is_measured() const { return !is_ceiling && seconds.median > 0 && is_right(); }
  bool is_right() const { return count_of(result.outcome) == Count::kPassed; }
  bool is_failed() const { return count_of(result.outcome) == Count::kFailed; }
  double bytes_per_s() const { return (bytes_read + bytes_written) / seconds.median; }
  double flops_per_s() const { return flops / seconds.median; }
};

// The noise of the machine while calls were measured.
struct MachineNoise {
  double slowdown = 1, most_slowdown = 1;  // The median over calls, and the largest.
  double uncertainty = 0;                  // The median over calls; infinite if half are busy.
  size_t busy = 0;                         // The number of calls during which processors were taken
                                           // away.

  bool is_noisy() const { return uncertainty > kNoisy; }
  static constexpr double kNoisy = 0.1;
};

struct PerfSummary {
  Ceilings ceilings;
  std::vector<PerfLine> lines;       // The lines of ceilings come first.
  std::map<char, size_t> grades;     // The number of calls with each grade.
  size_t between = 0, ungraded = 0;  // Calls with one of two grades, and those with none.
  size_t measured = 0, failed = 0, skipped = 0;  // Counts of calls; a failed ceiling counts as a
                                                 // failure too.
  double mean_fraction = 0;  // The geometric mean over calls with one grade or two; 0 if there are
                             // none.
  MachineNoise machine;
  std::vector<std::string> findings;

  bool has_roofs() const { return !grades.empty() || between + ungraded > 0; }
};

char grade_of(double fraction);
// Sets the grades at both ends of the interval.
void set_grades(PerfLine& line);

// Adds the ceiling that `line` measured to `ceilings`.
void take_ceiling(const PerfLine& line, Ceilings& ceilings);

// Returns the line of a case, with its roof and its grade under `ceilings`.
PerfLine make_line(const Case& which, const Result& result, const Ceilings& ceilings);

// Counts the grades, and finds signs of a wrong cost model.
PerfSummary summarize_perf(std::vector<PerfLine> lines, Ceilings ceilings);

// Returns up to `count` measured calls with the lowest fractions, the lowest first.
std::vector<const PerfLine*> slowest(const PerfSummary& summary, size_t count);

}  // namespace bp::conformance
