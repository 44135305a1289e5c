#include "conformance/perf/grades.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/perf/ceilings.hpp"
#include "conformance/perf/yardstick.hpp"

namespace bp::conformance {
namespace {

struct GradeRow {
  char grade;
  double fraction;  // The lowest fraction with this grade.
};
constexpr GradeRow kGrades[] = {{'A', 0.8}, {'B', 0.6}, {'C', 0.4}, {'D', 0.25}, {'F', 0}};

// A yardstick has stalled if an eighth of its work takes more than kStalled of the whole time, and
// longer than kManyLaunches launches.
constexpr double kStalled = 0.5;
constexpr double kManyLaunches = 10;

// Returns 0 for a metric that is missing, or is no finite number: a result passes through JSON,
// which has neither NaN nor infinity, and comes from a process that it shares with the backend.
double metric(const Result& result, const char* name) {
  const auto found = result.metrics.find(name);
  return found == result.metrics.end() || !std::isfinite(found->second) ? 0 : found->second;
}

// Returns the scatter of a call; infinite if the result has one that is no finite number.
double scatter_of(const Result& result) {
  const auto found = result.metrics.find("scatter");
  if (found == result.metrics.end()) return 0;
  return std::isfinite(found->second) ? found->second : HUGE_VAL;
}

// Returns the seconds that memory needs, or 0 if no ceiling of memory is known.
double memory_seconds(const PerfLine& line, const Ceilings& ceilings) {
  const double copy = ceilings.copy_bytes_per_s;
  const double update = std::max(ceilings.update_bytes_per_s, copy);
  const double read = std::max(ceilings.read_bytes_per_s, copy);
  const double write = std::max(ceilings.write_bytes_per_s, copy);
  if (read == 0 || write == 0) return 0;
  const double updated = copy == 0 ? 0 : line.bytes_updated;
  const double both = copy == 0 ? 0 : std::min(line.bytes_read, line.bytes_written);
  const double seconds = (line.bytes_read - both) / read + (line.bytes_written - both) / write;
  return both == 0 ? seconds : seconds + 2 * updated / update + 2 * (both - updated) / copy;
}

// Returns how many times longer a yardstick took beside a call than beside the ceilings; 1 if that
// is unknown.
double slowdown(const PerfLine& line, const char* yardstick, double then) {
  const double now = metric(line.result, yardstick);
  return now > 0 && then > 0 ? now / then : 1;
}

// Returns whether the time of the yardstick does not depend on its work; see part_seconds().
bool is_stalled(const Result& result, const Ceilings& ceilings) {
  const double part = metric(result, kPartYardstick), whole = metric(result, kCopyYardstick);
  const double launch = ceilings.batched_launch_s;
  return launch > 0 && part > kStalled * whole && part > kManyLaunches * launch;
}

// Returns the uncertainty of the roof: that of the least certain ceiling in it, combined with the
// uncertainty of the launch in proportion to its share.
double roof_uncertainty(const PerfLine& line, const Ceilings& ceilings) {
  double most = 0;
  const auto add = [&](const std::string& name, bool is_used) {
    if (is_used) most = std::max(most, ceilings.uncertainty_of(name));
  };
  if (line.is_flops_bound) {
    add("matmul." + line.dtype, true);
  } else {
    const double both = std::min(line.bytes_read, line.bytes_written);
    add("copy", both > line.bytes_updated || ceilings.copy_yardstick_s > 0);
    add("update", line.bytes_updated > 0);
    add("read", line.bytes_read > both);
    add("write", line.bytes_written > both);
  }
  const double launch = ceilings.batched_launch_s / line.roof_s;
  return launch == 0 ? most : std::hypot(most, launch * ceilings.uncertainty_of("launch"));
}

void grade(PerfLine& line, const Ceilings& ceilings) {
  const double of_copies = slowdown(line, kCopyYardstick, ceilings.copy_yardstick_s);
  const double memory = memory_seconds(line, ceilings) * of_copies;
  const auto peak = ceilings.flops_per_s.find(line.dtype);
  const bool has_peak = peak != ceilings.flops_per_s.end() && peak->second > 0;
  const auto yardstick = ceilings.product_yardstick_s.find(line.dtype);
  const double of_products = yardstick == ceilings.product_yardstick_s.end()
                                 ? 1
                                 : slowdown(line, kProductYardstick, yardstick->second);
  const double products = has_peak ? line.flops / peak->second * of_products : 0;
  // A product has no roof if the peak of its dtype is unknown.
  if (memory == 0 || (line.flops > 0 && !has_peak)) return;
  line.is_flops_bound = products > memory;
  line.slowdown = line.is_flops_bound ? of_products : of_copies;
  line.roof_s = std::max(memory, products) + ceilings.batched_launch_s;
  line.fraction = line.roof_s / line.seconds.median;
  line.uncertainty.drift = kDriftShare * std::fabs(std::log(line.slowdown));
  line.uncertainty.ceilings = roof_uncertainty(line, ceilings);
  set_grades(line);
}

MachineNoise machine_of(const std::vector<PerfLine>& lines) {
  MachineNoise machine;
  std::vector<double> slowdowns, uncertainties;
  for (const PerfLine& line : lines) {
    if (!line.is_measured() || !line.has_roof()) continue;
    slowdowns.push_back(line.slowdown);
    uncertainties.push_back(line.uncertainty.total());
    machine.most_slowdown = std::max(machine.most_slowdown, line.slowdown);
    machine.busy += line.is_busy;
  }
  if (slowdowns.empty()) return machine;
  machine.slowdown = spread_of(std::move(slowdowns)).median;
  machine.uncertainty = spread_of(std::move(uncertainties)).median;
  return machine;
}

std::string percent_text(double fraction) {
  return std::to_string(static_cast<int>(std::lround(fraction * 100))) + " %";
}

// Adds a finding for uncertain ceilings, and one for a noisy machine that says what to do.
void add_noise_findings(PerfSummary& summary, size_t roofs) {
  std::string uncertain;
  for (const auto& [name, share] : summary.ceilings.uncertainty) {
    if (share <= kPassesAgree || name == "launch") continue;
    uncertain += (uncertain.empty() ? "" : ", ") + name + " (" +
                 (std::isinf(share) ? "did not settle" : percent_text(share)) + ")";
  }
  if (!uncertain.empty()) {
    summary.findings.push_back("ceilings that differ from pass to pass: " + uncertain +
                               "; roofs that stand on them are as uncertain");
  }
  if (!summary.machine.is_noisy()) return;
  const size_t open = summary.between + summary.ungraded;
  summary.findings.push_back(
      "the machine is too noisy: " + std::to_string(open) + " of " + std::to_string(roofs) +
      " calls have no grade of their own, " + std::to_string(summary.machine.busy) +
      " since other work took the processors away; stop other work, pin this to idle processors "
      "(taskset), or measure longer (--min-time)");
}

}  // namespace

char grade_of(double fraction) {
  return std::ranges::find_if(kGrades,
                              [=](const GradeRow& row) { return fraction >= row.fraction; })
      ->grade;
}

double Uncertainty::total() const {
  return std::sqrt(scatter * scatter + drift * drift + ceilings * ceilings + runs * runs);
}

double PerfLine::least() const { return fraction * std::exp(-uncertainty.total()); }
double PerfLine::most() const { return fraction * std::exp(uncertainty.total()); }

bool PerfLine::is_between() const {
  const auto row = [](char grade) { return std::ranges::find(kGrades, grade, &GradeRow::grade); };
  return has_roof() && !is_too_noisy() && row(worst_grade) == row(best_grade) + 1;
}

std::string PerfLine::grade_text() const {
  if (is_graded()) return {best_grade};
  if (is_between()) return std::string(1, best_grade) + " or " + worst_grade;
  if (is_busy) return "not graded: busy machine";
  if (std::isinf(uncertainty.ceilings)) return "not graded: its ceiling did not settle";
  if (std::isinf(uncertainty.total())) return "not graded: its scatter is not known";
  return "not graded: noise " + percent_text(uncertainty.total());
}

void set_grades(PerfLine& line) {
  line.best_grade = grade_of(line.most());
  line.worst_grade = grade_of(line.least());
}

void take_ceiling(const PerfLine& line, Ceilings& ceilings) {
  if (!line.is_ceiling || !line.is_right()) return;
  const std::string name = line.id.substr(std::string_view(kCeilingPrefix).size());
  if (metric(line.result, kUnsettled) > 0) ceilings.uncertainty[name] = HUGE_VAL;
  const double bytes_per_s = metric(line.result, "bytes_per_s");
  if (name == "copy") ceilings.copy_bytes_per_s = bytes_per_s;
  if (name == "read") ceilings.read_bytes_per_s = bytes_per_s;
  if (name == "update") ceilings.update_bytes_per_s = bytes_per_s;
  if (name == "write") ceilings.write_bytes_per_s = bytes_per_s;
  if (name == "launch") {
    ceilings.launch_s = metric(line.result, "launch_s");
    ceilings.batched_launch_s = metric(line.result, "batched_s");
  }
  if (name == "copy") ceilings.copy_yardstick_s = metric(line.result, kCopyYardstick);
  if (is_stalled(line.result, ceilings)) ceilings.uncertainty["copy"] = HUGE_VAL;
  const double flops = metric(line.result, "flops_per_s");
  if (flops == 0) return;
  ceilings.flops_per_s[line.dtype] = flops;
  ceilings.product_yardstick_s[line.dtype] = metric(line.result, kProductYardstick);
}

PerfLine make_line(const Case& which, const Result& result, const Ceilings& ceilings) {
  PerfLine line;
  line.id = which.id;
  line.dtype = which.dtype;
  line.result = result;
  line.is_ceiling = which.id.starts_with(kCeilingPrefix);
  line.seconds = {metric(result, "median_s"), metric(result, "deviation_s")};
  line.bytes_read = metric(result, "bytes_read");
  line.bytes_written = metric(result, "bytes_written");
  line.bytes_updated = metric(result, "bytes_updated");
  line.flops = metric(result, "flops");
  line.is_busy = metric(result, "is_busy") > 0 || is_stalled(result, ceilings);
  line.uncertainty.scatter = line.is_busy ? HUGE_VAL : scatter_of(result);
  if (line.is_measured()) grade(line, ceilings);
  return line;
}

PerfSummary summarize_perf(std::vector<PerfLine> lines, Ceilings ceilings) {
  PerfSummary summary;
  summary.ceilings = std::move(ceilings);
  summary.lines = std::move(lines);
  double logarithms = 0;
  size_t roofs = 0;
  for (const PerfLine& line : summary.lines) {
    summary.failed += line.is_failed();
    summary.measured += line.is_measured();
    summary.skipped += !line.is_ceiling && !line.is_failed() && !line.is_measured();
    if (!line.is_measured()) continue;
    if (!line.has_roof()) {
      summary.findings.push_back(line.id + " has no roof: its ceiling was not measured");
      continue;
    }
    if (line.is_graded()) ++summary.grades[line.best_grade];
    summary.between += line.is_between();
    summary.ungraded += !line.is_graded() && !line.is_between();
    ++roofs;
    if (line.is_graded() || line.is_between()) logarithms += std::log(line.fraction);
    // A high fraction that comes from noise is no finding.
    if (line.is_too_noisy() || line.least() <= kTooFast) continue;
    summary.findings.push_back(
        line.id + " reaches " + percent_text(line.fraction) + " of its roof: " +
        (line.is_flops_bound
             ? "it multiplies faster than the matmul of " + line.dtype + " that is its ceiling"
             : "the cost model counts too much, or the "
               "ceiling was measured too low"));
  }
  summary.machine = machine_of(summary.lines);
  const size_t graded = roofs - summary.ungraded;
  if (graded > 0) summary.mean_fraction = std::exp(logarithms / static_cast<double>(graded));
  add_noise_findings(summary, roofs);
  return summary;
}

std::vector<const PerfLine*> slowest(const PerfSummary& summary, size_t count) {
  std::vector<const PerfLine*> found;
  for (const PerfLine& line : summary.lines) {
    if (line.is_measured() && line.has_roof() && !line.is_too_noisy()) found.push_back(&line);
  }
  std::ranges::stable_sort(found, {}, &PerfLine::fraction);
  found.resize(std::min(found.size(), count));
  return found;
}

}  // namespace bp::conformance
