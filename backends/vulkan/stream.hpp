// Streams and events: their handles, and the submission of work.
//
// A stream is a queue of the host (backends/shell/queue.hpp). It runs its tasks, which record
// commands, on the caller's thread. Tasks stay in the queue only behind a callback, or behind a
// wait for work that is not yet recorded. A lane says how far the stream has come on the device.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/lane.hpp"
#include "backplane/shell/semaphore_ops.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::vulkan {

// What every handle begins with.
using Handle = MortalHandle<Device>;

// The handle of a queue. When the handle is destroyed, the queue and the lane live on until their
// work has ended.
struct Stream : Handle {
  static constexpr uint32_t kMagic = 0x56537472;

  explicit Stream(Device& its_device) : Handle(kMagic, its_device) {}

  // Returns the stream with which the handle goes on after a reset.
  Stream& heir() { return device->heir_of(*this); }

  std::shared_ptr<Queue> queue;
  std::shared_ptr<Lane> lane;
};

inline const std::shared_ptr<Queue>& work_of(const Stream& stream) { return stream.queue; }

// What a record captured, or what the host signals.
struct Moment {
  // `its_engine` is the engine of the stream, or NULL if the host signals the moment.
  explicit Moment(std::shared_ptr<Engine> its_engine)
      : engine(std::move(its_engine)),
        submitted(std::make_shared<Point>(false)),
        ended(std::make_shared<Point>(false)) {}

  // Sets what the record captured, and releases all waiters. `outcome` is the outcome of the
  // stream.
  void complete(Ticket its_ticket, std::shared_ptr<Timestamp> its_time, const Outcome& outcome);

  // Lets `ended` complete when the work has ended.
  void watch();

  bool is_done() const {
    return submitted->is_complete() && (engine == nullptr || engine->recorder.is_done(ticket));
  }

  // Waits for the moment. Returns false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns) const;

  const std::shared_ptr<Engine> engine;
  const std::shared_ptr<Point> submitted;  // Complete once recorded or signalled.
  const std::shared_ptr<Point> ended;      // For waiters that cannot record behind it.
  Ticket ticket = 0;                       // Valid once it is submitted.
  std::shared_ptr<Timestamp> time;

 private:
  std::mutex mutex_;
  bool is_watched_ = false;
};

struct Event : Handle, EventOf<Moment> {
  static constexpr uint32_t kMagic = 0x56457665;

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

// Waits until the work submitted to `stream` so far has ended. Returns false if timeout_ns passed
// first.
bool wait_for_stream(Stream stream, uint64_t timeout_ns);

}  // namespace bp::vulkan
