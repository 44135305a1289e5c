// The device's side of a stream: the failures that a test ordered.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "backplane/shell/queue.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::cpu {

struct Stream;

// The state of one stream on the device. All handles of the stream share it.
class Lane {
 public:
  TestFaults& faults() { return faults_; }

 private:
  TestFaults faults_;
};

// Submits `task`, and lets it fail as `fault` says. `written` is the memory in which a byte becomes
// wrong for BP_TEST_FAULT_CORRUPTION; it may be empty.
bp_status submit_with_fault(const Stream& stream, const TestFault& fault,
                            std::span<std::byte> written, std::function<void()> task);

}  // namespace bp::cpu
