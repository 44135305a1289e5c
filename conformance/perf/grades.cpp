#include "conformance/perf/grades.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/perf/ceilings.hpp"
#include "conformance/perf/yardstick.hpp"

namespace bp::conformance {
namespace {

struct GradeRow {
  char grade;
  double fraction;  // The lowest.
};
constexpr GradeRow kGrades[] = {{'A', 0.8}, {'B', 0.6}, {'C', 0.4}, {'D', 0.25}, {'F', 0}};

double metric(const Result& result, const char* name) {
  const auto found = result.metrics.find(name);
  return found == result.metrics.end() ? 0 : found->second;
}

// 0 where no ceiling of memory is known.
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

// By how much longer a yardstick took beside a call than beside the ceilings; 1 if it is not known.
double slowdown(const PerfLine& line, const char* yardstick, double then) {
  const double now = metric(line.result, yardstick);
  return now > 0 && then > 0 ? now / then : 1;
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
  // Without the peak of its dtype, a product has no roof.
  if (memory == 0 || (line.flops > 0 && !has_peak)) return;
  line.is_flops_bound = products > memory;
  line.slowdown = line.is_flops_bound ? of_products : of_copies;
  const std::string yard = line.is_flops_bound ? kProductYardstick : kCopyYardstick;
  line.noise = metric(line.result, (yard + "_noise").c_str());
  line.roof_s = std::max(memory, products) + ceilings.batched_launch_s;
  line.fraction = line.roof_s / line.seconds.median;
  line.grade = grade_of(line.fraction);
}

MachineNoise machine_of(const std::vector<PerfLine>& lines) {
  MachineNoise machine;
  std::vector<double> slowdowns, noises;
  for (const PerfLine& line : lines) {
    if (!line.is_measured() || line.grade == '-') continue;
    slowdowns.push_back(line.slowdown);
    noises.push_back(line.noise);
    machine.most_slowdown = std::max(machine.most_slowdown, line.slowdown);
    machine.noisy += line.noise > kNoisy;
  }
  if (slowdowns.empty()) return machine;
  machine.slowdown = spread_of(std::move(slowdowns)).median;
  machine.noise = spread_of(std::move(noises)).median;
  return machine;
}

std::string percent_text(double fraction) {
  return std::to_string(static_cast<int>(std::lround(fraction * 100))) + " %";
}

}  // namespace

char grade_of(double fraction) {
  return std::ranges::find_if(kGrades,
                              [=](const GradeRow& row) { return fraction >= row.fraction; })
      ->grade;
}

char held_grade(char before, double fraction) {
  const auto* const row = std::ranges::find(kGrades, before, &GradeRow::grade);
  if (row == std::end(kGrades)) return grade_of(fraction);
  const double most = row == kGrades ? HUGE_VAL : (row - 1)->fraction;
  const bool is_held = fraction >= row->fraction / (1 + kHeld) && fraction < most * (1 + kHeld);
  return is_held ? before : grade_of(fraction);
}

void take_ceiling(const PerfLine& line, Ceilings& ceilings) {
  if (!line.is_ceiling || !line.is_right()) return;
  const std::string name = line.id.substr(std::string_view(kCeilingPrefix).size());
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
  if (line.is_measured()) grade(line, ceilings);
  return line;
}

PerfSummary summarize_perf(std::vector<PerfLine> lines, Ceilings ceilings) {
  PerfSummary summary;
  summary.ceilings = std::move(ceilings);
  summary.lines = std::move(lines);
  double logarithms = 0;
  size_t graded = 0;
  for (const PerfLine& line : summary.lines) {
    summary.failed += line.is_failed();
    summary.measured += line.is_measured();
    if (line.is_ceiling && metric(line.result, "unsettled") > 0) {
      summary.findings.push_back(
          line.id +
          " did not settle: its best runs differ, since the machine is busy; "
          "grades that stand on it are too good");
    }
    summary.skipped += !line.is_ceiling && !line.is_failed() && !line.is_measured();
    if (!line.is_measured()) continue;
    if (line.grade == '-') {
      summary.findings.push_back(line.id + " has no roof: its ceiling was not measured");
      continue;
    }
    ++summary.grades[line.grade];
    ++graded;
    logarithms += std::log(line.fraction);
    if (line.fraction <= kTooFast) continue;
    summary.findings.push_back(
        line.id + " reaches " + percent_text(line.fraction) + " of its roof: " +
        (line.is_flops_bound
             ? "it multiplies faster than the matmul of " + line.dtype + " that is its ceiling"
             : "the cost model counts too much, or the "
               "ceiling was measured too low"));
  }
  summary.machine = machine_of(summary.lines);
  if (summary.machine.noisy * 10 > graded) {
    summary.findings.push_back(
        "the machine is noisy: beside " + std::to_string(summary.machine.noisy) + " of " +
        std::to_string(graded) + " calls its yardstick scattered by more than " +
        percent_text(kNoisy) + "; grades near a limit may differ in another run");
  }
  if (graded > 0) summary.mean_fraction = std::exp(logarithms / static_cast<double>(graded));
  return summary;
}

std::vector<const PerfLine*> slowest(const PerfSummary& summary, size_t count) {
  std::vector<const PerfLine*> found;
  for (const PerfLine& line : summary.lines) {
    if (line.is_measured() && line.grade != '-') found.push_back(&line);
  }
  std::ranges::stable_sort(found, {}, &PerfLine::fraction);
  found.resize(std::min(found.size(), count));
  return found;
}

}  // namespace bp::conformance
