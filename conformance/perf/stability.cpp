#include "conformance/perf/stability.hpp"

#include <algorithm>

namespace bp::conformance {
namespace {

// The line of a call in one run; NULL if it has none.
const PerfLine* find_line(const PerfSummary& run, const std::string& id) {
  const auto found = std::ranges::find(run.lines, id, &PerfLine::id);
  return found == run.lines.end() ? nullptr : &*found;
}

// The lines of a call in all runs.
std::vector<const PerfLine*> lines_of(const std::vector<PerfSummary>& runs, const std::string& id) {
  std::vector<const PerfLine*> lines;
  for (const PerfSummary& run : runs) {
    if (const PerfLine* line = find_line(run, id)) lines.push_back(line);
  }
  return lines;
}

const PerfLine& middle_line(std::vector<const PerfLine*> lines) {
  for (const PerfLine* line : lines) {
    if (!line->is_measured()) return *line;
  }
  std::ranges::stable_sort(lines, {}, &PerfLine::fraction);
  return *lines[lines.size() / 2];
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
  for (const PerfLine& first : runs.front().lines) {
    if (first.is_ceiling) continue;
    RowRuns row{.id = first.id, .grades = {}, .held = {}, .fractions = {}};
    for (const PerfLine* line : lines_of(runs, first.id)) {
      if (!line->is_measured() || line->grade == '-') continue;
      row.grades += line->grade;
      row.held += row.held.empty() ? line->grade : held_grade(row.held.back(), line->fraction);
      row.fractions.push_back(line->fraction);
    }
    if (row.grades.size() != runs.size()) continue;
    stability.crossed += row.has_crossed();
    stability.changed += row.has_changed();
    ranges.push_back(row.range());
    stability.most_range = std::max(stability.most_range, row.range());
    stability.rows.push_back(std::move(row));
  }
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
