// What the groups of timed launches of a call come to: its time, and how far that is to be trusted.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace bp::conformance {

// Above this a yardstick says that the machine was busy: 15 % more than the best fifth of its
// times.
double quiet_limit(std::vector<double> yardsticks);

// Groups of launches in the order of time, each with what the yardsticks say behind it.
struct GroupTimes {
  struct Group {
    double seconds = 0;  // Of each launch.
    size_t launches = 0;
    std::vector<double> yardsticks;  // Seconds.
    bool was_preempted = false;
    bool is_quiet = true;  // Of the machine.
  };
  std::vector<Group> groups;

  // Finds the groups that were not preempted, and before and behind which every yardstick was
  // short.
  void mark_quiet();
  size_t quiet_count() const;
  // Whether so many were quiet as a measurement needs: 20, or half of fewer than 40.
  bool has_quiet() const { return quiet_count() >= std::min(kFewest, (groups.size() + 1) / 2); }
  // Of the quiet groups, or of all where these are too few.
  std::vector<const Group*> counted() const;

  static constexpr size_t kFewest = 20;
};

// The metrics of a call: median_s, deviation_s, scatter, runs, groups, busy_groups, is_busy (where
// too few groups were quiet), and of each yardstick by its name what it takes where the call takes
// its median.
//
// The scatter is the uncertainty of the median, of seconds or of the ratio of a yardstick to them,
// whichever is larger: what drifts shows in one of the two.
std::map<std::string, double> metrics_of(const GroupTimes& times,
                                         const std::vector<std::string>& yardsticks);

}  // namespace bp::conformance
