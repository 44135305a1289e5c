// Whether the system took processors away from this process while something was timed.
//
// Where more threads want to run than there are processors, a launch waits for a thread of its own
// that waits for its turn: it takes as long as a time slice of the scheduler, over and over, which
// looks steady and has nothing to do with the call. On an idle machine of four processors a process
// was preempted 5 to 30 times in a second of launches, on a busy one 300 to 500 times.
#pragma once

#include <cstdint>

namespace bp::conformance {

class PreemptionWatch {
 public:
  PreemptionWatch();

  // Whether preemptions since then are more than the system itself needs in that time.
  bool was_preempted(double seconds) const;

 private:
  int64_t before_;
};

// Of one processor and second: what the system itself needs.
constexpr double kPreemptionsPerSecond = 25;
bool are_too_many_preemptions(int64_t count, double seconds, unsigned processors);

}  // namespace bp::conformance
