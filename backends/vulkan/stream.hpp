// Streams and events: what the handles are, and how work is submitted.
//
// A stream is a queue of the host (backends/shell/queue.hpp), which runs its tasks in the caller:
// they record commands. Only behind a wait for what has not been recorded yet, or behind a
// callback, tasks stay in the queue. A lane tells how far the stream has come on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/lane.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::vulkan {

// What every handle begins with.
struct Handle {
  Handle(uint32_t its_magic, Device& its_device)
      : magic(its_magic), device(&its_device), generation(its_device.generation()) {}

  uint32_t magic;
  Device* device;
  uint64_t generation;  // Of the device when the handle was made: a reset ends it.
};

constexpr uint32_t kStreamMagic = 0x56537472;
constexpr uint32_t kEventMagic = 0x56457665;

// The handle of a queue. The queue and the lane live on after it until their work has ended.
struct Stream : Handle {
  explicit Stream(Device& its_device) : Handle(kStreamMagic, its_device) {}

  std::shared_ptr<Queue> queue;
  std::shared_ptr<Lane> lane;
};

// What a record captured, or what the host signals.
struct Moment {
  // `its_engine` is that of the stream; NULL for one that the host signals.
  explicit Moment(std::shared_ptr<Engine> its_engine)
      : engine(std::move(its_engine)),
        submitted(std::make_shared<Point>(false)),
        ended(std::make_shared<Point>(false)) {}

  // Sets what was captured, and lets go who waits. `outcome` is that of the stream.
  void complete(Ticket its_ticket, std::shared_ptr<Timestamp> its_time, const Outcome& outcome);

  // Makes `ended` complete when the work has ended.
  void watch();

  bool is_done() const {
    return submitted->is_complete() && (engine == nullptr || engine->recorder.is_done(ticket));
  }

  // False if timeout_ns passed first.
  bool wait(uint64_t timeout_ns) const;

  const std::shared_ptr<Engine> engine;
  const std::shared_ptr<Point> submitted;  // The work is recorded, or the host has signalled.
  const std::shared_ptr<Point> ended;      // For who cannot be ordered by recording behind it.
  Ticket ticket = 0;                       // Valid once it is submitted.
  std::shared_ptr<Timestamp> time;

 private:
  std::mutex mutex_;
  bool is_watched_ = false;
};

struct Event : Handle, EventOf<Moment> {
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

// Submits work that touches `ranges`: `body` records it, and is called with a Recording.
template <typename Ranges, typename Body>
bp_status submit_work(Stream& stream, Ranges ranges, Body body) {
  const TestFault fault = stream.lane->faults().take(*stream.queue);
  return stream.queue->submit(
      [lane = stream.lane, fault, ranges = std::move(ranges), body = std::move(body)]() mutable {
        auto record = [&](Recording& recording) {
          recording.order(ranges);
          body(recording);
        };
        lane->run(fault, ranges, record);
      });
}

// Waits until the work submitted to `stream` so far has ended. False if timeout_ns passed first.
bool wait_for_stream(Stream stream, uint64_t timeout_ns);

}  // namespace bp::vulkan
