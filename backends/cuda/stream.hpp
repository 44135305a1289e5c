// The handles of streams and events. lane.hpp has what they do.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/cuda/device.hpp"
#include "backends/cuda/lane.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::cuda {

constexpr uint32_t kStreamMagic = 0x43537472;
constexpr uint32_t kEventMagic = 0x43457665;

struct Stream {
  explicit Stream(std::shared_ptr<Lane> its_lane) : lane(std::move(its_lane)) {}

  uint32_t magic = kStreamMagic;
  std::shared_ptr<Lane> lane;
};

inline const std::shared_ptr<Lane>& work_of(const Stream& stream) { return stream.lane; }

// What the handle of an event begins with.
struct EventHandle {
  uint32_t magic;
  Device* device;
};

struct Event : EventHandle, EventOf<Record> {
  Event(Device& its_device, bp_event_flags its_flags)
      : EventHandle{kEventMagic, &its_device}, EventOf(its_flags) {}
};

// The handle types of the ABI are never completed as global structs, because two backends linked
// into one program would then both define bp_stream. This header alone converts them to their own
// types. A conversion returns NULL if a handle is not of this backend.
inline Stream* stream_or_null(bp_stream* handle) { return object_of<Stream>(handle, kStreamMagic); }
inline Event* event_or_null(bp_event* handle) { return object_of<Event>(handle, kEventMagic); }

// Returns the stream behind a handle, which is the argument `what` of the entry `call`. Throws
// StatusError if the handle is not of this backend, or if its device is lost.
Stream& stream_of(bp_stream* handle, const char* call, const char* what = "stream");
Lane& lane_of(bp_stream* handle, const char* call, const char* what = "stream");

// Returns the event behind a handle in the same way.
Event& event_of(bp_event* handle, const char* call, const char* what = "event");

// Takes the stream on which a device captures CUDA graphs. One thread at a time has it.
class Recorder {
 public:
  // Takes the stream. Throws CudaError.
  explicit Recorder(Device& device);
  Recorder(const Recorder&) = delete;

  Device& device() const { return device_; }
  Lane& lane() const { return *stream_.lane; }
  bp_stream* handle() const { return reinterpret_cast<bp_stream*>(&stream_); }

  // Where the kernels that were captured report bad data: nobody else's.
  const std::shared_ptr<BadDataSlot>& slot() const { return slot_; }

 private:
  Device& device_;
  const std::unique_lock<std::mutex> lock_;
  mutable Stream stream_;
  const std::shared_ptr<BadDataSlot> slot_;
};

// Polls until done() is true, with growing pauses. Returns false if timeout_ns passed first.
bool poll(uint64_t timeout_ns, const std::function<bool()>& done);

}  // namespace bp::cuda
