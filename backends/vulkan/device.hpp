// One device as one instance sees it: its properties, and the handles that were made of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/card.hpp"
#include "backplane/memory.h"
#include "backplane/shell/address_map.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::vulkan {

struct Buffer;
struct Event;
struct Stream;

class Device {
 public:
  Device(Instance& instance, const Physical& physical);
  Device(const Device&) = delete;
  ~Device();

  Instance& owner() const { return instance_; }
  const Physical& physical() const { return card_->physical(); }
  const bp_device_properties& properties();
  const bp_heap& heap(size_t index) const { return heaps_[index]; }
  uint64_t heap_count() const { return heaps_.size(); }
  Card& card() const { return *card_; }

  bool is_lost() const { return card_->is_lost(); }
  uint64_t generation() const { return card_->generation(); }
  bool is_alive(uint64_t generation_of_handle) const {
    return !is_lost() && generation_of_handle == generation();
  }

  // Blocks until the work of all streams has ended; false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns);

  Stream* default_stream();
  Stream* create_stream();
  bool is_default_stream(const Stream* stream);
  void destroy_stream(Stream* stream);

  // What the host has made and not yet ended is freed with the device.
  void add(Buffer* buffer);
  void remove(Buffer* buffer);
  void add(Event* event);
  void remove(Event* event);

  // Fills `info` with the buffer that owns the memory at an address; false if none of this device
  // does.
  bool find(uint64_t address, bp_address_info& info);

  FailingAllocation& allocations() { return allocations_; }

  // Whether the host has handles of it.
  bool is_in_use() const;

  // The card is lost: queued work ends with that failure, and no wait holds it any more.
  void end_work();

  // Waits for what still runs, and frees the memory of all buffers. Their handles stay, dead.
  void end_handles();

  // Waits until nothing runs any more that can end without the host.
  void settle() const;

  // What stands between shutdown and the end of the last task: nobody signals any more.
  void abandon_work();

 private:
  void set_heaps();
  Stream* make_stream();
  std::vector<std::shared_ptr<Queue>> live_queues() const;

  Instance& instance_;
  const std::shared_ptr<Card> card_;
  std::vector<bp_heap> heaps_;
  bp_device_properties properties_{};
  FailingAllocation allocations_;

  mutable std::mutex mutex_;  // Guards what follows.
  std::unordered_set<Stream*> streams_;
  std::vector<std::weak_ptr<Queue>> closing_;  // Destroyed, and perhaps still busy.
  std::unordered_set<Buffer*> buffers_;
  AddressMap<Buffer> places_;
  std::unordered_set<Event*> events_;
  Stream* default_stream_ = nullptr;
};

// The device behind a handle, for the entry `call`. Throws StatusError unless it is one of this
// instance, and not lost.
Device& device_of(const Instance& i, bp_device* handle, const char* call,
                  const char* what = "device");

// The same, also if it is lost.
Device& any_device_of(const Instance& i, bp_device* handle, const char* call, const char* what);

}  // namespace bp::vulkan
