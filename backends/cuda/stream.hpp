// The handles of streams and events. lane.hpp has what they do.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/cuda/device.hpp"
#include "backends/cuda/lane.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/semaphore_ops.hpp"
#include "backplane/shell/stream_ops.hpp"
#include "backplane/stream.h"

namespace bp::cuda {

// What every handle begins with.
using Handle = DeviceHandle<Device>;

struct Stream : Handle {
  static constexpr uint32_t kMagic = 0x43537472;

  explicit Stream(std::shared_ptr<Lane> its_lane)
      : Handle(kMagic, its_lane->device()), lane(std::move(its_lane)) {}

  std::shared_ptr<Lane> lane;
};

inline const std::shared_ptr<Lane>& work_of(const Stream& stream) { return stream.lane; }

struct Event : Handle, EventOf<Record> {
  static constexpr uint32_t kMagic = 0x43457665;

  Event(Device& its_device, bp_event_flags its_flags)
      : Handle(kMagic, its_device), EventOf(its_flags) {}
};

struct Semaphore : SemaphoreOf<Handle> {
  using SemaphoreOf::SemaphoreOf;
};

// The handle types of the ABI are never completed as global structs, because two backends linked
// into one program would then both define bp_stream. This header alone converts them to their own
// types.
//
// Returns the lane of the stream behind a handle, an argument of the entry `call`. Throws
// StatusError if the handle is not of this backend, or if its device is lost.
inline Lane& lane_of(bp_stream* handle, const char* call) {
  return *live_object_of<Stream>(handle, call, "stream").lane;
}

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
