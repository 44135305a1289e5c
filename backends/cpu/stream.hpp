// Streams and events of the CPU backend: what the handles are.
#pragma once

#include <memory>

#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::cpu {

constexpr uint32_t kStreamMagic = 0x73747265;
constexpr uint32_t kEventMagic = 0x6576656e;

class Device;

// The first members of every handle.
struct Handle {
  uint32_t magic;
  Device* device;
};

// The handle of a queue. When the handle is destroyed, the queue lives on until its work has ended.
struct Stream : Handle {
  explicit Stream(Device& its_device) : Handle{kStreamMagic, &its_device} {}

  std::shared_ptr<Queue> queue;
};

inline const std::shared_ptr<Queue>& work_of(const Stream& stream) { return stream.queue; }

struct Event : Handle, EventOf<Point> {
  Event(Device& its_device, bp_event_flags its_flags)
      : Handle{kEventMagic, &its_device}, EventOf(its_flags, (its_flags & BP_EVENT_TIMING) != 0) {}
};

// The handle types of the ABI are never completed as global structs, because two backends linked
// into one program would then both define bp_stream. This header alone converts them to their own
// types.
//
// Return the stream or event behind a handle, which is the argument `what` of the entry `call`.
// They throw StatusError if the handle is not of this backend.
Stream& stream_of(bp_stream* handle, const char* call, const char* what = "stream");
Event& event_of(bp_event* handle, const char* call, const char* what = "event");

// Returns the queue of a stream, or NULL if the handle is not of this backend.
inline Queue* queue(bp_stream* handle) {
  const Stream* const s = object_of<Stream>(handle, kStreamMagic);
  return s == nullptr ? nullptr : s->queue.get();
}

}  // namespace bp::cpu
