#include "conformance/perf/estimate.hpp"

#include <algorithm>

#include "conformance/perf/spread.hpp"

namespace bp::conformance {
namespace {

constexpr double kQuiet = 1.15;  // A factor on the best fifth of a yardstick's times.

}  // namespace

double quiet_limit(std::vector<double> yardsticks) {
  const auto fifth = yardsticks.begin() + static_cast<std::ptrdiff_t>(yardsticks.size() / 5);
  std::ranges::nth_element(yardsticks, fifth);
  return kQuiet * *fifth;
}

void GroupTimes::mark_quiet() {
  for (Group& group : groups) group.is_quiet = !group.was_preempted;
  const size_t kinds = groups.empty() ? 0 : groups.front().yardsticks.size();
  for (size_t kind = 0; kind < kinds; ++kind) {
    std::vector<double> times;
    for (const Group& group : groups) times.push_back(group.yardsticks[kind]);
    const double most = quiet_limit(std::move(times));
    for (size_t i = 0; i < groups.size(); ++i) {
      const size_t before = i == 0 ? i : i - 1;
      if (std::max(groups[before].yardsticks[kind], groups[i].yardsticks[kind]) > most) {
        groups[i].is_quiet = false;
      }
    }
  }
}

size_t GroupTimes::quiet_count() const {
  return static_cast<size_t>(std::ranges::count(groups, true, &Group::is_quiet));
}

std::vector<const GroupTimes::Group*> GroupTimes::counted() const {
  const bool are_quiet = has_quiet();
  std::vector<const Group*> chosen;
  for (const Group& group : groups) {
    if (group.is_quiet || !are_quiet) chosen.push_back(&group);
  }
  return chosen;
}

std::map<std::string, double> metrics_of(const GroupTimes& times,
                                         const std::vector<std::string>& yardsticks) {
  std::map<std::string, double> metrics;
  std::vector<double> seconds;
  for (const GroupTimes::Group* group : times.counted()) {
    seconds.push_back(group->seconds);
    metrics["runs"] += static_cast<double>(group->launches);
  }
  const Spread spread = spread_of(seconds);
  metrics["median_s"] = spread.median;
  metrics["deviation_s"] = spread.deviation;
  metrics["groups"] = static_cast<double>(seconds.size());
  metrics["busy_groups"] = static_cast<double>(times.groups.size() - times.quiet_count());
  if (!times.has_quiet()) metrics["is_busy"] = 1;
  double scatter = uncertainty_of(seconds);
  for (size_t kind = 0; kind < yardsticks.size(); ++kind) {
    std::vector<double> ratios;
    for (const GroupTimes::Group* group : times.counted()) {
      ratios.push_back(group->yardsticks[kind] / group->seconds);
    }
    metrics[yardsticks[kind]] = spread_of(ratios).median * spread.median;
    scatter = std::max(scatter, uncertainty_of(ratios));
  }
  metrics["scatter"] = scatter;
  return metrics;
}

}  // namespace bp::conformance
