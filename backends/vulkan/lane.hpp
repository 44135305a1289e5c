// The device's side of a stream: how far its work has come on the device, and the failures that a
// test ordered.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "backends/vulkan/card.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::vulkan {

// The state of one stream on the device. Recorded work keeps it alive.
class Lane {
 public:
  Lane(std::shared_ptr<Card> card, std::shared_ptr<Engine> engine)
      : card_(std::move(card)), engine_(std::move(engine)) {}

  Card& card() const { return *card_; }
  Engine& engine() const { return *engine_; }
  const std::shared_ptr<Engine>& shared_engine() const { return engine_; }
  Recorder& recorder() const { return engine_->recorder; }

  // Returns the newest ticket of work that the stream recorded or waits for. Only the stream's
  // queue changes it.
  Ticket last() const { return last_.load(std::memory_order_acquire); }
  void advance(Ticket ticket) { last_.store(std::max(ticket, last()), std::memory_order_release); }

  TestFaults& faults() { return faults_; }

  // Records work that accesses `ranges`: calls `body` with a Recording. Throws the failure of the
  // work.
  template <typename Body>
  void run(const TestFault& fault, std::span<const AddressRange> ranges, Body& body) {
    if (fault.kind == BP_TEST_FAULT_SUBMISSION) throw_test_fault(fault);
    advance(recorder().record(body));
    if (fault.kind == BP_TEST_FAULT_CORRUPTION) corrupt(ranges);
    if (fault.kind == BP_TEST_FAULT_DATA) throw_test_fault(fault);
  }

 private:
  // Changes one byte in the middle of what the work wrote last, if it wrote anything.
  void corrupt(std::span<const AddressRange> ranges);

  const std::shared_ptr<Card> card_;
  const std::shared_ptr<Engine> engine_;
  std::atomic<Ticket> last_ = 0;
  TestFaults faults_;
};

}  // namespace bp::vulkan
