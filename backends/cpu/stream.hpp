// Streams and events of the CPU backend: what the handles are.
#pragma once

#include <memory>

#include "backends/cpu/backend.hpp"
#include "backends/cpu/lane.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/semaphore_ops.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::cpu {

class Device;

// What every handle begins with.
using Handle = DeviceHandle<Device>;

// The handle of a queue. When the handle is destroyed, the queue lives on until its work has ended.
struct Stream : Handle {
  static constexpr uint32_t kMagic = 0x73747265;

  explicit Stream(Device& its_device) : Handle(kMagic, its_device) {}

  std::shared_ptr<Queue> queue;
  std::shared_ptr<Lane> lane = std::make_shared<Lane>();
};

inline const std::shared_ptr<Queue>& work_of(const Stream& stream) { return stream.queue; }

// Returns whether the profiler records the next work of a stream, or a test ordered it to fail.
inline bool is_watched(const Instance& i, const Stream& stream) {
  return i.hooks.is_recording() || stream.lane->faults().is_ordered();
}

struct Event : Handle, EventOf<Point> {
  static constexpr uint32_t kMagic = 0x6576656e;

  Event(Device& its_device, bp_event_flags its_flags)
      : Handle(kMagic, its_device), EventOf(its_flags, (its_flags & BP_EVENT_TIMING) != 0) {}
};

struct Semaphore : SemaphoreOf<Handle> {
  using SemaphoreOf::SemaphoreOf;
};

// The handle types of the ABI are never completed as global structs, because two backends linked
// into one program would then both define bp_stream. This header alone converts them to their own
// types.
//
// Returns the stream behind a handle, an argument of the entry `call`. Throws StatusError if the
// handle is not of this backend. The device is never lost, so a handle is valid until it is
// destroyed.
inline Stream& stream_of(bp_stream* handle, const char* call) {
  return checked_object_of<Stream>(handle, call, "stream");
}

}  // namespace bp::cpu
