// Streams, events and semaphores: what the handles are.
#pragma once

#include <memory>

#include "backplane/shell/lookup.hpp"
#include "backplane/shell/queue_streams.hpp"
#include "backplane/shell/semaphore_ops.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "device.hpp"

namespace acme_opencl {

// What every handle begins with.
using Handle = bp::MortalHandle<Device>;

// The handle of a lane. When the handle is destroyed, the lane lives on until its work has ended.
struct Stream : Handle {
  static constexpr uint32_t kMagic = 0x41537472;

  explicit Stream(Device& its_device) : Handle(kMagic, its_device) {}

  // Returns the stream with which the handle goes on after a reset.
  Stream& heir() { return device->heir_of(*this); }

  std::shared_ptr<Lane> queue;
};

inline const std::shared_ptr<Lane>& work_of(const Stream& stream) { return stream.queue; }

struct Event : Handle, bp::EventOf<bp::Point> {
  static constexpr uint32_t kMagic = 0x41457665;

  Event(Device& its_device, bp_event_flags its_flags)
      : Handle(kMagic, its_device), EventOf(its_flags, (its_flags & BP_EVENT_TIMING) != 0) {}
};

struct Semaphore : bp::SemaphoreOf<Handle> {
  using SemaphoreOf::SemaphoreOf;
};

// Returns the stream behind a handle, an argument of the entry `call`. Throws StatusError if the
// handle is not of this backend, if its device is lost, or if the device was reset since.
inline Stream& stream_of(bp_stream* handle, const char* call) {
  return bp::live_object_of<Stream>(handle, call, "stream");
}

}  // namespace acme_opencl
