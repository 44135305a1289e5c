// One device as one instance sees it: its properties, and its handles.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/card.hpp"
#include "backplane/memory.h"
#include "backplane/shell/handles.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::sim {

struct Buffer;
struct Event;
struct PhysicalHandle;
struct Semaphore;
struct Stream;

// The clock of a device. It began at another moment than the host's clock, and runs a little
// faster.
class DeviceClock {
 public:
  explicit DeviceClock(uint32_t index)
      : offset_ns_(int64_t{1'000'000'000} * (index + 1)),
        parts_per_million_(int64_t{40} * (index + 1)) {}

  int64_t at_host_time(int64_t host_ns) const {
    return host_ns + host_ns / 1'000'000 * parts_per_million_ + offset_ns_;
  }

 private:
  const int64_t offset_ns_, parts_per_million_;
};

class Device : public DeviceHandles<Stream, Queue, Buffer, Event, Semaphore> {
 public:
  Device(Instance& instance, uint32_t index);
  Device(const Device&) = delete;
  ~Device();

  uint32_t index() const { return index_; }
  Instance& owner() const { return instance_; }
  const Options& options() const { return instance_.options; }
  const bp_device_properties& properties() const { return properties_; }
  const bp_heap& heap(size_t index) const { return heaps_[index]; }
  uint64_t heap_count() const { return properties_.heap_count; }
  Place place(size_t heap_index) const {
    return {card_, heap_index, heaps_[heap_index].size_bytes, options().is_protected};
  }
  const DeviceClock& clock() const { return clock_; }
  Card& card() const { return *card_; }
  const std::shared_ptr<Card>& shared_card() const { return card_; }

  bool is_lost() const { return card_->is_lost(); }
  uint64_t generation() const { return card_->generation(); }

  // Sets an option. Throws StatusError if the option does not exist or the value is not valid.
  void set_option(std::string_view key, std::string_view value);

  Stream* default_stream();
  Stream* create_stream();
  Stream* create_callback_stream();  // Other threads than those of streams run it.

  // Lets the default stream go on after a reset.
  void renew_default_stream();

  // Returns a second handle for the queue whose native handle is `native`, or NULL if this device
  // has no such queue.
  Stream* wrap_stream(const void* native);

  // The device frees what the host has made and not yet destroyed. Two buffers that own their
  // memory never overlap: add() returns false, and adds nothing, if `buffer` would overlap another
  // one.
  using DeviceHandles::add;
  using DeviceHandles::remove;
  bool add(Buffer* buffer);
  void add(PhysicalHandle* memory) { memories_.add(memory); }
  void remove(PhysicalHandle* memory) { memories_.remove(memory); }

  // Returns the memory at an address. If no buffer of this device has it, returns memory of the
  // card that another instance has, or NULL.
  std::shared_ptr<Memory> memory_at(uint64_t address);

  FailingAllocation& allocations() { return allocations_; }

  // Returns whether the host has handles of this device.
  bool is_in_use() const;

  // Ends queued work because the card is lost. The work fails, and does not wait any more.
  void end_work();

  // Waits for running work, and frees the memory of all buffers. The buffers stay as dead handles.
  void end_handles();

  // Leaves the card at shutdown: calls of other instances do not reach the device any more.
  void leave_card() { card_->detach(this); }

 private:
  size_t set_heaps();  // How many there are.
  std::unique_ptr<Stream> make_stream(Executor& executor);

  Instance& instance_;
  const uint32_t index_;
  const std::shared_ptr<Card> card_;
  const DeviceClock clock_;
  const std::string name_;
  SharedDelays delays_;
  std::array<bp_heap, kMaxHeaps> heaps_{};
  bp_device_properties properties_{};
  FailingAllocation allocations_;

  std::atomic<uint64_t> stream_count_ = 0;
  HandleSet<PhysicalHandle> memories_;
};

// Returns the device behind a handle for the entry `call`. Throws StatusError if the handle is not
// a device of this instance, or if the device is lost.
inline Device& device_of(const Instance& i, bp_device* handle, const char* call,
                         const char* what = "device") {
  return Cards<Instance, Device>::device_of(i, handle, call, what);
}

}  // namespace bp::sim
