// One device as one instance sees it: its properties, and its handles.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend.hpp"
#include "backplane/shell/handles.hpp"
#include "backplane/shell/test_fault.hpp"
#include "card.hpp"
#include "lane.hpp"

namespace acme_opencl {

struct Buffer;
struct Event;
struct Semaphore;
struct Stream;

class Device : public bp::DeviceHandles<Stream, Lane, Buffer, Event, Semaphore> {
 public:
  Device(Instance& instance, uint32_t index, const DeviceInfo& info);
  Device(const Device&) = delete;
  ~Device();

  Instance& owner() const { return instance_; }
  const bp_device_properties& properties() const { return properties_; }
  const bp_heap& heap() const { return heap_; }
  Card& card() const { return *card_; }

  bool is_lost() const { return card_->is_lost(); }
  uint64_t generation() const { return card_->generation(); }

  Stream* default_stream();
  Stream* create_stream();
  Stream* create_callback_stream();  // Other threads than those of streams run it.

  // Lets the default stream go on after a reset.
  void renew_default_stream();

  // The device frees what the host has made and not yet destroyed.
  using DeviceHandles::add;
  bool add(Buffer* buffer);

  bp::FailingAllocation& allocations() { return allocations_; }

  // For SharedCard (shared_card.hpp).
  void end_work();
  void end_handles();

  // Leaves the card at shutdown: calls of other instances do not reach the device any more.
  void leave_card() { card_->detach(this); }

 private:
  std::unique_ptr<Stream> make_stream(bp::Executor& executor);

  Instance& instance_;
  const std::shared_ptr<Card> card_;
  const bp_heap heap_;
  bp_device_properties properties_;
  bp::FailingAllocation allocations_;
};

}  // namespace acme_opencl
