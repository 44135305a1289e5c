#include "conformance/perf/grades.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/perf/ceilings.hpp"

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
  const double read = std::max(ceilings.read_bytes_per_s, copy);
  const double write = std::max(ceilings.write_bytes_per_s, copy);
  if (read == 0 || write == 0) return 0;
  const double paired = copy == 0 ? 0 : std::min(line.bytes_read, line.bytes_written);
  const double seconds = (line.bytes_read - paired) / read + (line.bytes_written - paired) / write;
  return paired == 0 ? seconds : seconds + 2 * paired / copy;
}

void grade(PerfLine& line, const Ceilings& ceilings) {
  const double memory = memory_seconds(line, ceilings);
  const auto peak = ceilings.flops_per_s.find(line.dtype);
  const bool has_peak = peak != ceilings.flops_per_s.end() && peak->second > 0;
  const double products = has_peak ? line.flops / peak->second : 0;
  // Without the peak of its dtype, a product has no roof.
  if (memory == 0 || (line.flops > 0 && !has_peak)) return;
  line.is_flops_bound = products > memory;
  line.roof_s = std::max(memory, products) + ceilings.launch_s;
  line.fraction = line.roof_s / line.seconds.median;
  line.grade = std::ranges::find_if(kGrades, [&](const GradeRow& row) {
                 return line.fraction >= row.fraction;
               })->grade;
}

std::string percent_text(double fraction) {
  return std::to_string(static_cast<int>(std::lround(fraction * 100))) + " %";
}

}  // namespace

void take_ceiling(const PerfLine& line, Ceilings& ceilings) {
  if (!line.is_ceiling || !line.is_right()) return;
  const std::string name = line.id.substr(std::string_view(kCeilingPrefix).size());
  const double bytes_per_s = metric(line.result, "bytes_per_s");
  if (name == "copy") ceilings.copy_bytes_per_s = bytes_per_s;
  if (name == "read") ceilings.read_bytes_per_s = bytes_per_s;
  if (name == "write") ceilings.write_bytes_per_s = bytes_per_s;
  if (name == "launch") {
    ceilings.launch_s = metric(line.result, "launch_s");
    ceilings.batched_launch_s = metric(line.result, "batched_s");
  }
  const double flops = metric(line.result, "flops_per_s");
  if (flops > 0) ceilings.flops_per_s[line.dtype] = flops;
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
