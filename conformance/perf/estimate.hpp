// Estimates the time of a call, and the uncertainty of that time, from its groups of timed
// launches.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace bp::conformance {

// Returns the limit above which a yardstick shows that the machine was busy: 15 % more than the
// best fifth of its times.
double quiet_limit(std::vector<double> yardsticks);

// Groups of launches in the order of time. Each group has the times of the yardsticks that ran
// after it.
struct GroupTimes {
  struct Group {
    double seconds = 0;  // The seconds of each launch.
    size_t launches = 0;
    std::vector<double> yardsticks;  // The seconds of each yardstick.
    bool was_preempted = false;
    bool is_quiet = true;  // Whether the machine was quiet around the group.
  };
  std::vector<Group> groups;

  // Sets is_quiet of the groups that were not preempted, and before and after which every yardstick
  // was fast.
  void mark_quiet();
  size_t quiet_count() const;
  // Returns whether enough groups were quiet for a measurement: 20, or half of them if there are
  // fewer than 40.
  bool has_quiet() const { return quiet_count() >= std::min(kFewest, (groups.size() + 1) / 2); }
  // Returns the quiet groups, or all groups if too few were quiet.
  std::vector<const Group*> counted() const;

  static constexpr size_t kFewest = 20;
};

// Returns the metrics of a call: median_s, deviation_s, scatter, runs, groups, busy_groups, is_busy
// (if too few groups were quiet), and for each yardstick, by its name, the seconds it takes when
// the call takes its median.
//
// The scatter is the larger of two uncertainties: that of the median of the seconds, and that of
// the ratio of a yardstick to the seconds. A drift of the machine shows in one of the two.
std::map<std::string, double> metrics_of(const GroupTimes& times,
                                         const std::vector<std::string>& yardsticks);

}  // namespace bp::conformance
