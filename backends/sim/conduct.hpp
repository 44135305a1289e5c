// How the work of one stream behaves: seeded pauses around it, the memory that is open to it, and
// the failures that were ordered.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/sim/options.hpp"
#include "backends/sim/pages.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/test_fault.h"

namespace bp::sim {

// What is to happen to one piece of work; a kind of 0 is nothing.
struct Fault {
  bp_test_fault_kind kind = 0;
  bp_status status = BP_OK;
};

class Conduct {
 public:
  // `delays` belongs to the device. Streams with different numbers draw different pauses.
  Conduct(const SharedDelays& delays, uint64_t stream_number)
      : delays_(delays), stream_number_(stream_number) {}

  // Sleeps for a while, or not at all.
  void pause();

  // The next piece of work gets `fault`.
  void order(Fault fault);
  Fault take_fault();

 private:
  const SharedDelays& delays_;
  const uint64_t stream_number_;
  std::atomic<uint64_t> drawn_ = 0;
  std::mutex mutex_;  // Guards `fault_`.
  Fault fault_;
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

[[noreturn]] void throw_ordered_failure(const Fault& fault);

// Changes one byte in the middle of what the work wrote last, if it wrote anything.
void corrupt(const std::vector<Use>& uses);

// Runs `task` as the device does. What it throws is found on the device: work that is submitted
// already still runs.
template <typename Task>
void run_work(Conduct& conduct, const Fault& fault, const std::vector<Use>& uses, Task& task) {
  conduct.pause();
  if (fault.kind == BP_TEST_FAULT_SUBMISSION) throw_ordered_failure(fault);
  {
    const OpenUses open(uses);
    try {
      task();
    } catch (const StatusError& e) {
      throw DataFailure(e.status(), e.what());
    }
    if (fault.kind == BP_TEST_FAULT_CORRUPTION) corrupt(uses);
  }
  conduct.pause();
  if (fault.kind == BP_TEST_FAULT_DATA) throw_ordered_failure(fault);
}

}  // namespace bp::sim
