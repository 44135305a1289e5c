// The one device of the CPU backend: the processors that this process may use, and their memory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/cpu/backend.hpp"
#include "backplane/memory.h"
#include "backplane/shell/address_map.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

struct MemoryOwner;

}  // namespace bp

namespace bp::cpu {

struct Buffer;
struct Event;
struct Stream;

class Device {
 public:
  Device(const bp_host& host, const Options& options);
  Device(const Device&) = delete;
  ~Device();

  const bp_device_properties& properties() const { return properties_; }
  const bp_heap& heap() const { return heap_; }

  int thread_count() const { return thread_count_.load(std::memory_order_relaxed); }

  void set_thread_count(int count) { thread_count_ = count; }

  // Blocks until the work of all streams has ended; false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns);

  Stream* default_stream() const { return default_stream_; }
  Stream* create_stream();
  bool is_default_stream(const Stream* stream) const { return stream == default_stream_; }
  void destroy_stream(Stream* stream);

  // A second handle for a queue of this device, which its own library knows by `native`; NULL if
  // there is no such queue.
  Stream* wrap_stream(const void* native);

  // What the host has made and not yet ended is freed with the device. Of buffers that own their
  // memory no two overlap: false if this one would, and nothing was added.
  bool add(Buffer* buffer);
  void remove(Buffer* buffer);
  void add(MemoryOwner* memory);
  void remove(MemoryOwner* memory);
  void add(Event* event);
  void remove(Event* event);

  // Fills `info` with what lies at an address; false if nothing of this device does.
  bool find(uint64_t address, bp_address_info& info);

 private:
  Stream* make_stream(bool is_inline);
  std::vector<std::shared_ptr<Queue>> live_queues();

  const bp_host& host_;
  std::string name_;
  bp_heap heap_{};
  bp_device_properties properties_{};
  std::atomic<int> thread_count_;
  Executor executor_;

  std::mutex mutex_;  // Guards what follows.
  std::unordered_set<Stream*> streams_;
  std::vector<std::weak_ptr<Queue>> closing_;  // Destroyed, and perhaps still busy.
  std::unordered_set<Buffer*> buffers_;
  AddressMap<Buffer> places_;
  std::unordered_set<MemoryOwner*> memories_;
  std::unordered_set<Event*> events_;
  Stream* default_stream_ = nullptr;
};

// NULL unless `handle` is a device of this instance.
inline Device* device(const Instance& i, bp_device* handle) {
  Device* const ours = i.device.get();
  return reinterpret_cast<Device*>(handle) == ours ? ours : nullptr;
}

// The same for the entry `call`, which throws StatusError for any other handle.
Device& device_of(const Instance& i, bp_device* handle, const char* call);

}  // namespace bp::cpu
