#include "conformance/perf/preemption.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

namespace bp::conformance {
namespace {

// Returns the preemptions of all threads of the process so far.
int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

PreemptionWatch::PreemptionWatch() : before_(preemptions()) {}

bool PreemptionWatch::was_preempted(double seconds) const {
  return are_too_many_preemptions(preemptions() - before_, seconds,
                                  std::max(std::thread::hardware_concurrency(), 1u));
}

bool are_too_many_preemptions(int64_t count, double seconds, unsigned processors) {
  return static_cast<double>(count) > kPreemptionsPerSecond * processors * seconds;
}

}  // namespace bp::conformance
