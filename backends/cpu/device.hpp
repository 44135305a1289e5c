// The one device of the CPU backend: the processors that this process may use, and their memory.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backends/cpu/backend.hpp"
#include "backplane/memory.h"
#include "backplane/shell/handles.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp {

struct MemoryOwner;

}  // namespace bp

namespace bp::cpu {

struct Buffer;
struct Event;
struct Semaphore;
struct Stream;

class Device : public DeviceHandles<Stream, Queue, Buffer, Event, Semaphore> {
 public:
  Device(const bp_host& host, const Options& options);
  Device(const Device&) = delete;
  ~Device();

  const bp_device_properties& properties() const { return properties_; }
  const bp_heap& heap() const { return heap_; }
  FailingAllocation& allocations() { return allocations_; }

  // Blocks until no work runs. Returns false if timeout_ns passed first. Work that waits for a
  // signal of the host does not run.
  bool wait_for_work(uint64_t timeout_ns) { return executors_.wait_idle(timeout_ns); }

  // Returns whether the host has handles of this device.
  bool is_in_use() const;

  int thread_count() const { return thread_count_.load(std::memory_order_relaxed); }

  // Throws StatusError for several threads in a child of a process that had several.
  void set_thread_count(int count);

  Stream* default_stream();
  Stream* create_stream();

  // Makes a stream for the callback of an event. Other threads than those of streams run it.
  Stream* create_callback_stream();

  // Returns a second handle for the queue whose native handle is `native`, or NULL if this device
  // has no such queue.
  Stream* wrap_stream(const void* native);

  // The device frees what the host has made and not yet destroyed. Two buffers that own their
  // memory never overlap: add() returns false, and adds nothing, if `buffer` would overlap another
  // one.
  using DeviceHandles::add;
  using DeviceHandles::remove;
  bool add(Buffer* buffer);
  void add(MemoryOwner* memory) { memories_.add(memory); }
  void remove(MemoryOwner* memory) { memories_.remove(memory); }

 private:
  std::unique_ptr<Stream> make_stream(Executor& executor, bool is_inline);

  const bp_host& host_;
  std::string name_;
  bp_heap heap_{};
  bp_device_properties properties_{};
  std::atomic<int> thread_count_;
  FailingAllocation allocations_;
  Executors executors_;  // Streams share a thread, because a kernel takes all processors.

  HandleSet<MemoryOwner> memories_;
};

// Returns the device behind a handle; NULL if it is none of this instance.
inline Device* device_or_null(const Instance& i, bp_device* handle) {
  return Cards<Instance, Device>::find(i, handle);
}

// The same, for the entry `call`. Throws StatusError unless it is one of this instance.
inline Device& device_of(const Instance& i, bp_device* handle, const char* call,
                         const char* what = "device") {
  return Cards<Instance, Device>::device_of(i, handle, call, what);
}

}  // namespace bp::cpu
