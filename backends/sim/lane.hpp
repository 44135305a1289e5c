// The device's side of a stream: the seeded pauses around its work, the memory that is open to the
// work, and the failures that a test ordered.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "backends/sim/options.hpp"
#include "backends/sim/pages.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::sim {

// The state of one stream on the device. The work of the stream keeps it alive when the handle has
// ended.
class Lane {
 public:
  // `delays` belongs to the device. Streams with different numbers draw different pauses.
  Lane(const SharedDelays& delays, uint64_t stream_number)
      : delays_(delays), stream_number_(stream_number) {}

  // Sleeps for a random time, which may be 0.
  void pause();

  TestFaults& faults() { return faults_; }

 private:
  const SharedDelays& delays_;
  const uint64_t stream_number_;
  std::atomic<uint64_t> drawn_ = 0;
  TestFaults faults_;
};

// Opens memory, and closes it in its destructor.
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

// Runs `task` as the device does. What the task throws is a failure on the device, so work that is
// already submitted still runs.
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
