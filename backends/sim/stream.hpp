// Streams and events of the simulated device: their handles, and the submission of work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/sim/device.hpp"
#include "backends/sim/lane.hpp"
#include "backends/sim/pages.hpp"
#include "backplane/shell/profiler.hpp"
#include "backplane/shell/semaphore_ops.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::sim {

// What every handle begins with.
using Handle = MortalHandle<Device>;

// The handle of a queue. When the handle is destroyed, the queue and the lane live on until their
// work has ended.
struct Stream : Handle {
  static constexpr uint32_t kMagic = 0x53747265;

  explicit Stream(Device& its_device) : Handle(kMagic, its_device) {}

  // Returns the stream with which the handle goes on after a reset.
  Stream& heir() { return device->heir_of(*this); }

  std::shared_ptr<Queue> queue;
  std::shared_ptr<Lane> lane;
};

inline const std::shared_ptr<Queue>& work_of(const Stream& stream) { return stream.queue; }

struct Event : Handle, EventOf<Point> {
  static constexpr uint32_t kMagic = 0x4576656e;

  Event(Device& its_device, bp_event_flags its_flags);
};

struct Semaphore : SemaphoreOf<Handle> {
  using SemaphoreOf::SemaphoreOf;
};

// The handle types of the ABI are never completed as global structs, because two backends linked
// into one program would then both define bp_stream. This header alone converts them to their own
// types.
//
// Returns the stream behind a handle, an argument of the entry `call`. Throws StatusError if the
// handle is not of this backend, if its device is lost, or if the device was reset since.
inline Stream& stream_of(bp_stream* handle, const char* call) {
  return live_object_of<Stream>(handle, call, "stream");
}

// Returns a task that runs the given task and leaves a record for the profiler.
std::function<void()> recorded(Stream& stream, const WorkName& work, std::function<void()> task);

template <typename Task>
bp_status submit_unrecorded(Stream& stream, std::vector<Use> uses, Task task) {
  // A use of 0 bytes is no use of memory. A copy of 0 bytes may run after its buffer has ended.
  std::erase_if(uses, [](const Use& use) { return use.size_bytes == 0; });
  const TestFault fault = stream.lane->faults().take(*stream.queue);
  return stream.queue->submit(
      [lane = stream.lane, uses = std::move(uses), fault, task = std::move(task)]() mutable {
        run_work(*lane, fault, uses, task);
      });
}

// Submits `task`, which may access only the memory in `uses`.
template <typename Task>
bp_status submit_work(Stream& stream, const WorkName& name, std::vector<Use> uses, Task task) {
  if (stream.device->owner().hooks.is_recording()) {
    return submit_unrecorded(stream, std::move(uses), recorded(stream, name, std::move(task)));
  }
  return submit_unrecorded(stream, std::move(uses), std::move(task));
}

}  // namespace bp::sim
