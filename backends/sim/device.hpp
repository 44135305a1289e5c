// One device as one instance sees it: its properties, and the handles that were made of it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "backends/sim/backend.hpp"
#include "backends/sim/card.hpp"
#include "backplane/memory.h"
#include "backplane/shell/address_map.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::sim {

struct Buffer;
struct Event;
struct PhysicalHandle;
struct Stream;

// A clock of its own: it began at another moment than the host's, and goes a little faster.
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

class Device {
 public:
  Device(Instance& instance, uint32_t index);
  Device(const Device&) = delete;
  ~Device();

  uint32_t index() const { return index_; }
  Instance& owner() const { return instance_; }
  const Options& options() const { return instance_.options; }
  const bp_device_properties& properties();
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
  bool is_alive(uint64_t generation_of_handle) const {
    return !is_lost() && generation_of_handle == generation();
  }

  // Throws StatusError for an option that does not exist or fit.
  void set_option(std::string_view key, std::string_view value);

  // Blocks until the work of all streams has ended; false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns);

  Stream* default_stream();
  Stream* create_stream();
  bool is_default_stream(const Stream* stream);
  void destroy_stream(Stream* stream);

  // A second handle for a queue of this device, which its own library knows by `native`; NULL if
  // there is no such queue.
  Stream* wrap_stream(const void* native);

  // What the host has made and not yet ended is freed with the device. Of buffers that own their
  // memory no two overlap: false if this one would, and nothing was added.
  bool add(Buffer* buffer);
  void remove(Buffer* buffer);
  void add(PhysicalHandle* memory);
  void remove(PhysicalHandle* memory);
  void add(Event* event);
  void remove(Event* event);

  // Fills `info` with the buffer that owns the memory at an address; false if none of this device
  // does.
  bool find(uint64_t address, bp_address_info& info);

  // That memory; if it is of no buffer here, that of the card, which another instance has. NULL if
  // there is none.
  std::shared_ptr<Memory> memory_at(uint64_t address);

  FailingAllocation& allocations() { return allocations_; }

  // Whether the host has handles of it.
  bool is_in_use() const;

  // The card is lost: queued work ends with that failure, and no wait holds it any more.
  void end_work();

  // Waits for what still runs, and frees the memory of all buffers. Their handles stay, dead.
  void end_handles();

  // What stands between shutdown and the end of the last task: nobody signals any more.
  void abandon_work();

 private:
  size_t set_heaps();  // How many there are.
  Stream* make_stream();
  std::vector<std::shared_ptr<Queue>> live_queues() const;

  Instance& instance_;
  const uint32_t index_;
  const std::shared_ptr<Card> card_;
  const DeviceClock clock_;
  const std::string name_;
  SharedDelays delays_;
  std::array<bp_heap, kMaxHeaps> heaps_{};
  bp_device_properties properties_{};
  FailingAllocation allocations_;

  mutable std::mutex mutex_;  // Guards what follows.
  uint64_t stream_count_ = 0;
  std::unordered_set<Stream*> streams_;
  std::vector<std::weak_ptr<Queue>> closing_;  // Destroyed, and perhaps still busy.
  std::unordered_set<Buffer*> buffers_;
  AddressMap<Buffer> places_;
  std::unordered_set<PhysicalHandle*> memories_;
  std::unordered_set<Event*> events_;
  Stream* default_stream_ = nullptr;
};

// The device behind a handle, for the entry `call`. Throws StatusError unless it is one of this
// instance, and not lost.
Device& device_of(const Instance& i, bp_device* handle, const char* call,
                  const char* what = "device");

// The same, also if it is lost.
Device& any_device_of(const Instance& i, bp_device* handle, const char* call, const char* what);

}  // namespace bp::sim
