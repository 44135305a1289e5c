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
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "conformance/case_list.hpp"
#include "conformance/perf/spread.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

constexpr double kTooFast = 1.1;  // A fraction above it is a finding about the cost model.

// 0 where it was not measured.
struct Ceilings {
  double copy_bytes_per_s = 0;
  double read_bytes_per_s = 0;
  double write_bytes_per_s = 0;
  double update_bytes_per_s = 0;
  double launch_s = 0;
  double batched_launch_s = 0;
  std::map<std::string, double> flops_per_s;  // By dtype.
  double copy_yardstick_s = 0;
  std::map<std::string, double> product_yardstick_s;  // By dtype.
};

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
  double noise = 0;     // Of its yardstick then: the scaled deviation as a share of the median.
  bool is_flops_bound = false;
  char grade = '-';

  bool is_measured() const { return !is_ceiling && seconds.median > 0 && is_right(); }
  bool is_right() const { return count_of(result.outcome) == Count::kPassed; }
  bool is_failed() const { return count_of(result.outcome) == Count::kFailed; }
  double bytes_per_s() const { return (bytes_read + bytes_written) / seconds.median; }
  double flops_per_s() const { return flops / seconds.median; }
};

// How steady the machine was while calls were measured.
struct MachineNoise {
  double slowdown = 1, most_slowdown = 1;  // The median over calls, and the largest.
  double noise = 0;                        // The median over calls.
  size_t noisy = 0;                        // Calls beside which it was above kNoisy.
};
constexpr double kNoisy = 0.1;

struct PerfSummary {
  Ceilings ceilings;
  std::vector<PerfLine> lines;  // Ceilings first.
  std::map<char, size_t> grades;
  size_t measured = 0, failed = 0, skipped = 0;  // Of calls; a failed ceiling is a failure as well.
  double mean_fraction = 0;                      // Geometric; 0 where no call has a roof.
  MachineNoise machine;
  std::vector<std::string> findings;
};

// A grade is held while the fraction lies within this share of its limits: what a machine's noise
// moves across a limit is no change.
constexpr double kHeld = 0.1;
char grade_of(double fraction);
char held_grade(char before, double fraction);

// The ceilings that the results of their cases hold.
void take_ceiling(const PerfLine& line, Ceilings& ceilings);

// The result of a case, with its roof and its grade under `ceilings`.
PerfLine make_line(const Case& which, const Result& result, const Ceilings& ceilings);

// Counts, and findings about the cost model.
PerfSummary summarize_perf(std::vector<PerfLine> lines, Ceilings ceilings);

// Up to `count` measured calls with the lowest fractions, the lowest first.
std::vector<const PerfLine*> slowest(const PerfSummary& summary, size_t count);

}  // namespace bp::conformance
