// One device as one instance sees it: its properties, and its handles.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/card.hpp"
#include "backplane/memory.h"
#include "backplane/shell/handles.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::vulkan {

struct Buffer;
struct Event;
struct Semaphore;
struct Stream;

class Device : public DeviceHandles<Stream, Queue, Buffer, Event, Semaphore> {
 public:
  Device(Instance& instance, const Physical& physical);
  Device(const Device&) = delete;
  ~Device();

  Instance& owner() const { return instance_; }
  const Physical& physical() const { return card_->physical(); }
  const bp_device_properties& properties() const { return properties_; }
  const bp_heap& heap(size_t index) const { return heaps_[index]; }
  uint64_t heap_count() const { return heaps_.size(); }
  Card& card() const { return *card_; }

  bool is_lost() const { return card_->is_lost(); }
  std::string loss() const { return card_->loss(); }  // Why it was lost, to end a sentence.
  uint64_t generation() const { return card_->generation(); }

  // Blocks until the work of all streams, and all work of the card, has ended. Returns false if
  // timeout_ns passed first.
  bool wait(uint64_t timeout_ns);

  Stream* default_stream();
  Stream* create_stream();

  // Lets the default stream go on after a reset.
  void renew_default_stream();

  // The device frees what the host has made and not yet destroyed.
  using DeviceHandles::add;
  bool add(Buffer* buffer);

  FailingAllocation& allocations() { return allocations_; }

  // Ends queued work because the card is lost. The work fails, and does not wait any more.
  void end_work();

  // Waits for running work, and frees the memory of all buffers. The buffers stay as dead handles.
  void end_handles();

  // Waits until all work that can end without the host has ended. Returns false if timeout_ns
  // passed first.
  bool settle(uint64_t timeout_ns) const;

  // Leaves the card at shutdown: calls of other instances do not reach the device any more.
  void leave_card() { card_->detach(this); }

 private:
  void set_heaps();
  std::unique_ptr<Stream> make_stream();

  Instance& instance_;
  const std::shared_ptr<Card> card_;
  std::vector<bp_heap> heaps_;
  bp_device_properties properties_{};
  FailingAllocation allocations_;
};

// Returns the device behind a handle for the entry `call`. Throws StatusError if the handle is not
// a device of this instance, or if the device is lost.
inline Device& device_of(const Instance& i, bp_device* handle, const char* call,
                         const char* what = "device") {
  return Cards<Instance, Device>::device_of(i, handle, call, what);
}

}  // namespace bp::vulkan
