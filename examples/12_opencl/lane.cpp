#include "lane.hpp"

#include <algorithm>

#include "device.hpp"

namespace acme_opencl {
namespace {

// After so much work a lane waits for the device, so that what it has handed over is limited.
constexpr uint64_t kMostHandedOver = 512;

}  // namespace

Lane::Lane(const bp_host& host, bp::Executor& executor, std::shared_ptr<Card> card)
    : Queue(host, executor, false), card_(std::move(card)) {}

CommandQueue& Lane::commands() {
  if (commands_ == nullptr) commands_ = std::make_unique<CommandQueue>(card_->context());
  return *commands_;
}

// A failure on the device does not end what is already in the queue, except the loss of the device.
void Lane::finish() {
  if (commands_ == nullptr) return;
  try {
    commands_->finish();
  } catch (const bp::StatusError& e) {
    if (e.status() != BP_DEVICE_LOST) throw bp::DataFailure(e.status(), e.what());
    card_->lose();
    throw;
  }
}

void Lane::run(const bp::TestFault& fault, const std::vector<Use>& uses,
               const std::function<void(CommandQueue&)>& body) {
  try {
    if (fault.kind == BP_TEST_FAULT_SUBMISSION) bp::throw_test_fault(fault);
    body(commands());
    if (fault.kind == BP_TEST_FAULT_CORRUPTION) corrupt(uses);
    if (fault.kind == BP_TEST_FAULT_DATA) bp::throw_test_fault(fault);
  } catch (const bp::StatusError& e) {
    finish();  // Its failure is the earlier one.
    if (e.status() == BP_DEVICE_LOST && fault.kind == 0) card_->lose();
    throw;
  }
  if (waiting_ == 0 || ++handed_over_ % kMostHandedOver == 0) finish();
}

bp_status Lane::finish_behind() {
  return submit_always([this](const bp::Outcome&) { finish(); }, false);
}

// The first item waits for the device, and fails the stream if the device failed. The second item
// then gets that failure too.
bp_status Lane::run_behind(std::function<void(const bp::Outcome&)> task) {
  const bp_status status = finish_behind();
  return status == BP_OK ? submit_always(std::move(task), false) : status;
}

// The device must not have work while its stream waits, because a failure ends the wait.
bp_status Lane::wait_behind(const std::shared_ptr<bp::Point>& point) {
  if (!point->is_complete() || point->outcome().status != BP_OK) {
    const bp_status status = finish_behind();
    if (status != BP_OK) return status;
  }
  return wait_for(point);
}

bool Lane::wait(uint64_t timeout_ns) {
  if (is_idle()) return true;
  finish_behind();
  return Queue::wait(timeout_ns);
}

// It waits for the device, which is acceptable because only tests order this fault.
void Lane::corrupt(const std::vector<Use>& uses) {
  const auto written = std::find_if(uses.rbegin(), uses.rend(), [](const Use& use) {
    return use.is_written && use.size_bytes > 0;
  });
  if (written == uses.rend()) return;
  const Place place{written->place.memory, written->place.byte_offset + written->size_bytes / 2};
  std::byte byte{};
  commands().read(&byte, place, 1, nullptr);
  finish();
  byte ^= std::byte{0x55};
  commands().write(place, &byte, 1, nullptr);
  finish();
}

}  // namespace acme_opencl
