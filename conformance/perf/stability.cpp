#include "conformance/perf/stability.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace bp::conformance {
namespace {

// Returns the line of a call in one run; NULL if the run has none.
const PerfLine* find_line(const PerfSummary& run, const std::string& id) {
  const auto found = std::ranges::find(run.lines, id, &PerfLine::id);
  return found == run.lines.end() ? nullptr : &*found;
}

// Returns the lines of a call in all runs.
std::vector<const PerfLine*> lines_of(const std::vector<PerfSummary>& runs, const std::string& id) {
  std::vector<const PerfLine*> lines;
  for (const PerfSummary& run : runs) {
    if (const PerfLine* line = find_line(run, id)) lines.push_back(line);
  }
  return lines;
}

// The median absolute deviation of normally distributed values times this factor is one sigma.
constexpr double kDeviationScale = 1.4826;

PerfLine middle_line(std::vector<const PerfLine*> lines) {
  for (const PerfLine* line : lines) {
    if (!line->is_measured()) return *line;
  }
  // clang 14 cannot compile std::ranges::stable_partition() of the library of g++ 12.
  const auto noisy = std::stable_partition(
      lines.begin(), lines.end(), [](const PerfLine* line) { return !line->is_too_noisy(); });
  if (noisy != lines.begin()) lines.erase(noisy, lines.end());
  std::ranges::stable_sort(lines, {}, &PerfLine::fraction);
  PerfLine middle = *lines[lines.size() / 2];
  if (!middle.has_roof()) return middle;
  std::vector<double> logarithms;
  for (const PerfLine* line : lines) {
    if (line->has_roof()) logarithms.push_back(std::log(line->fraction));
  }
  // The deviation is two sigmas; it comes from medians, so that one bad run does not move it.
  const double deviation = 2 * kDeviationScale * spread_of(std::move(logarithms)).deviation;
  middle.uncertainty.runs = std::max(middle.uncertainty.runs, deviation);
  set_grades(middle);
  return middle;
}

}  // namespace

double RowRuns::range() const {
  const auto [least, most] = std::ranges::minmax(fractions);
  return least > 0 ? most / least - 1 : 0;
}

Stability stability_of(const std::vector<PerfSummary>& runs) {
  Stability stability;
  stability.runs = runs.size();
  std::vector<double> ranges;
  size_t graded = 0, all = 0;
  for (const PerfLine& first : runs.front().lines) {
    if (first.is_ceiling) continue;
    RowRuns row;
    row.id = first.id;
    std::set<char> grades;
    for (const PerfLine* line : lines_of(runs, first.id)) {
      if (!line->is_measured() || !line->has_roof()) continue;
      row.grades.push_back(line->grade_text());
      row.fractions.push_back(line->fraction);
      if (!line->is_graded()) continue;
      grades.insert(line->best_grade);
      ++graded;
    }
    all += row.grades.size();
    if (row.grades.size() != runs.size()) continue;
    row.has_changed = grades.size() > 1;
    stability.changed += row.has_changed;
    ranges.push_back(row.range());
    stability.most_range = std::max(stability.most_range, row.range());
    stability.rows.push_back(std::move(row));
  }
  if (all > 0) stability.graded = static_cast<double>(graded) / static_cast<double>(all);
  stability.range = spread_of(std::move(ranges)).median;
  return stability;
}

PerfSummary middle_of(const std::vector<PerfSummary>& runs) {
  std::vector<const PerfSummary*> sorted;
  for (const PerfSummary& run : runs) sorted.push_back(&run);
  std::ranges::stable_sort(sorted, {}, &PerfSummary::mean_fraction);
  const PerfSummary& middle = *sorted[sorted.size() / 2];
  std::vector<PerfLine> lines;
  for (const PerfLine& line : middle.lines) {
    lines.push_back(line.is_ceiling ? line : middle_line(lines_of(runs, line.id)));
  }
  return summarize_perf(std::move(lines), middle.ceilings);
}

}  // namespace bp::conformance
