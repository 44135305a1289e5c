// Detects whether the system took processors away from this process during a measurement.
//
// If more threads want to run than there are processors, a launch waits for one of its own threads,
// which waits for a processor. Each launch then takes as long as a time slice of the scheduler:
// this looks steady, but says nothing about the call. On an idle machine of four processors a
// process was preempted 5 to 30 times in a second of launches, on a busy one 300 to 500 times.
#pragma once

#include <cstdint>

namespace bp::conformance {

class PreemptionWatch {
 public:
  PreemptionWatch();

  // Returns whether the process was preempted more often than the system itself causes in
  // `seconds`.
  bool was_preempted(double seconds) const;

 private:
  int64_t before_;
};

// How often the system itself preempts a process, for each processor and second.
constexpr double kPreemptionsPerSecond = 25;
bool are_too_many_preemptions(int64_t count, double seconds, unsigned processors);

}  // namespace bp::conformance
