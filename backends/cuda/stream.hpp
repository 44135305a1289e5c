// Streams and events: their handles. What they do is that of lane.hpp.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "backends/cuda/device.hpp"
#include "backends/cuda/lane.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::cuda {

constexpr uint32_t kStreamMagic = 0x43537472;
constexpr uint32_t kEventMagic = 0x43457665;

struct Stream {
  uint32_t magic = kStreamMagic;
  std::shared_ptr<Lane> lane;
};

// What the handle of an event begins with.
struct EventHandle {
  uint32_t magic;
  Device* device;
};

struct Event : EventHandle, EventOf<Record> {
  Event(Device& its_device, bp_event_flags its_flags)
      : EventHandle{kEventMagic, &its_device}, EventOf(its_flags) {}
};

// Handles are never completed as global structs: two backends linked into one program would then
// both define bp_stream. Each type is converted here and nowhere else. NULL if a handle is not one
// of this backend.
inline Stream* stream_or_null(bp_stream* handle) { return object_of<Stream>(handle, kStreamMagic); }
inline Event* event_or_null(bp_event* handle) { return object_of<Event>(handle, kEventMagic); }

// The stream behind a handle, for the argument `what` of the entry `call`. Throws StatusError if it
// is none of this backend, or its device is lost.
Stream& stream_of(bp_stream* handle, const char* call, const char* what = "stream");
Lane& lane_of(bp_stream* handle, const char* call, const char* what = "stream");

// The event behind a handle, in the same way.
Event& event_of(bp_event* handle, const char* call, const char* what = "event");

// The stream on which a device captures graphs of CUDA, while one thread has it.
class Recorder {
 public:
  // Throws CudaError.
  explicit Recorder(Device& device);
  Recorder(const Recorder&) = delete;

  Device& device() const { return device_; }
  Lane& lane() const { return *stream_.lane; }
  bp_stream* handle() const { return reinterpret_cast<bp_stream*>(&stream_); }

  // Where the kernels that were captured report bad data: nobody else's.
  const std::shared_ptr<FaultSlot>& slot() const { return slot_; }

 private:
  Device& device_;
  const std::unique_lock<std::mutex> lock_;
  mutable Stream stream_;
  const std::shared_ptr<FaultSlot> slot_;
};

// Waits until done() or timeout_ns has passed: more and more rarely looking. False if it passed.
bool poll(uint64_t timeout_ns, const std::function<bool()>& done);

}  // namespace bp::cuda
