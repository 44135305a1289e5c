// Streams and events of the simulated device: what the handles are, and how work is submitted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/sim/device.hpp"
#include "backends/sim/lane.hpp"
#include "backends/sim/pages.hpp"
#include "backplane/profiler.h"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::sim {

// What every handle begins with.
struct Handle {
  Handle(uint32_t its_magic, Device& its_device)
      : magic(its_magic), device(&its_device), generation(its_device.generation()) {}

  uint32_t magic;
  Device* device;
  uint64_t generation;  // Of the device when the handle was made: a reset ends it.
};

constexpr uint32_t kStreamMagic = 0x53747265;
constexpr uint32_t kEventMagic = 0x4576656e;

// The handle of a queue. The queue and the lane live on after it until their work has ended.
struct Stream : Handle {
  explicit Stream(Device& its_device) : Handle(kStreamMagic, its_device) {}

  std::shared_ptr<Queue> queue;
  std::shared_ptr<Lane> lane;
};

struct Event : Handle, EventOf<Point> {
  Event(Device& its_device, bp_event_flags its_flags);
};

// Handles are never completed as global structs: two backends linked into one program would then
// both define bp_stream. Each type is converted here and nowhere else.
//
// The stream or event behind a handle, for the argument `what` of the entry `call`. Throws
// StatusError if it is none of this backend, its device is lost, or the device was reset since.
Stream& stream_of(bp_stream* handle, const char* call, const char* what = "stream");
Event& event_of(bp_event* handle, const char* call, const char* what = "event");

// The same for destroy(), which takes a handle of a lost device.
Stream& any_stream_of(bp_stream* handle, const char* call, const char* what = "stream");
Event& any_event_of(bp_event* handle, const char* call, const char* what = "event");

// Throws StatusError of BP_DEVICE_LOST for a handle whose device is lost or was reset since.
void require_alive(const Handle& handle, const char* call, const char* what);

// What the profiler records of a piece of work. `bytes` are read and written.
struct WorkName {
  bp_activity_kind kind;
  const char* name;
  uint64_t bytes = 0, correlation_id = 0;
};

// The task, so that it leaves a record for the profiler.
std::function<void()> recorded(Stream& stream, const WorkName& name, std::function<void()> task);

template <typename Task>
bp_status submit_unrecorded(Stream& stream, std::vector<Use> uses, Task task) {
  // No bytes are no memory: a copy of none may outlive the buffer.
  std::erase_if(uses, [](const Use& use) { return use.size_bytes == 0; });
  const TestFault fault = stream.lane->faults().take(*stream.queue);
  return stream.queue->submit(
      [lane = stream.lane, uses = std::move(uses), fault, task = std::move(task)]() mutable {
        run_work(*lane, fault, uses, task);
      });
}

// Submits `task`, which may touch the memory in `uses` and no other.
template <typename Task>
bp_status submit_work(Stream& stream, const WorkName& name, std::vector<Use> uses, Task task) {
  if (stream.device->owner().hooks.is_recording()) {
    return submit_unrecorded(stream, std::move(uses), recorded(stream, name, std::move(task)));
  }
  return submit_unrecorded(stream, std::move(uses), std::move(task));
}

}  // namespace bp::sim
