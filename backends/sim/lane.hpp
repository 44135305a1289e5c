// The device's side of a stream, which is how its work behaves: seeded pauses around it, the memory
// that is open to it, and the failures that were ordered.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "backends/sim/options.hpp"
#include "backends/sim/pages.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::sim {

// The work of a stream holds it, also when the handle has ended.
class Lane {
 public:
  // `delays` belongs to the device. Streams with different numbers draw different pauses.
  Lane(const SharedDelays& delays, uint64_t stream_number)
      : delays_(delays), stream_number_(stream_number) {}

  // Sleeps for a while, or not at all.
  void pause();

  TestFaults& faults() { return faults_; }

 private:
  const SharedDelays& delays_;
  const uint64_t stream_number_;
  std::atomic<uint64_t> drawn_ = 0;
  TestFaults faults_;
};

// Opens memory while it lives.
class OpenUses {
 public:
  explicit OpenUses(const std::vector<Use>& uses);
  ~OpenUses();
  OpenUses(const OpenUses&) = delete;

 private:
  const std::vector<Use>& uses_;
  size_t open_ = 0;
};

// Changes one byte in the middle of what the work wrote last, if it wrote anything.
void corrupt(const std::vector<Use>& uses);

// Runs `task` as the device does. What it throws is found on the device: work that is submitted
// already still runs.
template <typename Task>
void run_work(Lane& lane, const TestFault& fault, const std::vector<Use>& uses, Task& task) {
  lane.pause();
  if (fault.kind == BP_TEST_FAULT_SUBMISSION) throw_test_fault(fault);
  {
    const OpenUses open(uses);
    try {
      task();
    } catch (const StatusError& e) {
      throw DataFailure(e.status(), e.what());
    }
    if (fault.kind == BP_TEST_FAULT_CORRUPTION) corrupt(uses);
  }
  lane.pause();
  if (fault.kind == BP_TEST_FAULT_DATA) throw_test_fault(fault);
}

}  // namespace bp::sim
