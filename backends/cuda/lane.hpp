// The device's side of a stream: a stream of CUDA's own, and what the host has to remember of it.
//
// What is submitted goes to the CUDA stream in the call, as long as nothing holds the stream back.
// A stream that waits for an event which only the host can complete, or for one that was recorded
// behind such a wait, is held: its work stays on the host, in a Queue, until the event completes or
// fails, and is submitted then. So no CUDA call ever blocks behind a signal that is yet to come,
// and what stands behind a failure does not run.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/device.hpp"
#include "backends/cuda/fault.hpp"
#include "backplane/shell/queue.hpp"

namespace bp::cuda {

// What bad data is to who asks for the status of a stream.
constexpr bp_status kFaultStatus = BP_INVALID_ARGUMENT;

// Where the kernels of one stream report bad data. Read at any time; never goes back to 0.
class FaultSlot {
 public:
  explicit FaultSlot(Device& device);
  FaultSlot(const FaultSlot&) = delete;

  // The next launch that may report an index that is not from 0 to below `extent`; `name` lives as
  // long as its kernel.
  Fault next(const char* name, int64_t extent);

  // How many launches may have reported so far.
  uint32_t last() const { return last_.load(std::memory_order_acquire); }

  // The launch that reported first, or 0.
  uint32_t reported() const;
  std::string text() const;

 private:
  struct Checked {
    const char* name = nullptr;
    int64_t extent = 0;
  };

  FaultReport* const report_;  // The device reaches it by the same address.
  std::atomic<uint32_t> last_ = 0;
  mutable std::mutex mutex_;
  std::array<Checked, 256> launches_{};  // The latest.
};

// The launches of another stream whose bad data is that of whoever waits for them.
struct FaultMark {
  std::shared_ptr<FaultSlot> slot;
  uint32_t last;

  bool has_fired() const {
    const uint32_t reported = slot->reported();
    return reported != 0 && reported <= last;
  }
};

// One CUDA event, which goes back to its device when nobody needs it.
class NativeEvent {
 public:
  NativeEvent(Device& device, bool is_timed);
  NativeEvent(const NativeEvent&) = delete;
  ~NativeEvent();

  Device& device() const { return device_; }
  cudaEvent_t get() const { return event_; }

  // Throw CudaError. synchronize() blocks until it is complete.
  bool is_complete() const;
  void synchronize() const;

 private:
  Device& device_;
  cudaEvent_t event_ = nullptr;
};

// One record of an event.
struct Record {
  // Completes when the record was submitted to CUDA, or failed to be. The host's signal for one
  // that the host completes.
  const std::shared_ptr<Point> submitted = std::make_shared<Point>(false);
  std::shared_ptr<NativeEvent> native;  // Valid once `submitted` is complete; NULL for a signal.
  std::vector<FaultMark> marks;         // The same.
  Outcome error;                        // The same: why it was not submitted.
};

// One CUDA stream, and everything that orders what is submitted to it. Lives until its work has
// been submitted, whatever becomes of the handle.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // Owns `native` unless it is somebody else's.
  Lane(Device& device, cudaStream_t native, bool is_owner);
  Lane(const Lane&) = delete;
  ~Lane();

  Device& device() const { return device_; }
  cudaStream_t native() const { return native_; }

  // Whether submissions go to CUDA at once.
  bool is_free() const { return queue_->is_idle(); }

  // BP_OK, or the failure of the stream with its text in the error slot.
  bp_status surface();

  // Submits `task`, a callable that returns nothing, makes calls of CUDA, and throws to fail. While
  // the stream is free it runs here, and what it throws is the caller's; else it is kept, and what
  // it throws is the stream's.
  template <typename Task>
  bp_status submit(Task&& task) {
    if (is_free()) {
      const bp_status status = surface();
      if (status == BP_OK) run(task);
      return status;
    }
    return hold(std::forward<Task>(task));
  }

  // Keeps `task` until the stream is free, or fails.
  template <typename Task>
  bp_status hold(Task&& task) {
    const bp_status status = surface();
    if (status != BP_OK) return status;
    return queue_->submit([lane = shared_from_this(), task = std::forward<Task>(task)]() mutable {
      lane->run(task);
    });
  }

  // Like submit(), for what happens also behind a failure, of which it is told.
  bp_status submit_always(std::function<void(const Outcome&)> task);

  // Makes later work wait for what was recorded.
  bp_status wait_for(const std::shared_ptr<Record>& record);

  // A launch that may report bad data, and the word where the next ones do.
  Fault next_fault(const char* name, int64_t extent);
  void use(std::shared_ptr<FaultSlot> slot);

  std::vector<FaultMark> marks();
  void inherit(const std::vector<FaultMark>& marks);

  // Whether everything submitted so far has ended. Throws CudaError.
  bool is_done();

  // False if timeout_ns passed before the work submitted so far had ended.
  bool wait(uint64_t timeout_ns);

  void clear_failure();
  // Of failures the first counts. At once, where the stream is free.
  void fail(bp_status status, const std::string& text);
  void abandon() { queue_->abandon(); }

  // The outcome that work submitted now would come behind.
  Outcome outcome();

 private:
  // Runs `task` with the device's context, and takes note of a lost device.
  template <typename Task>
  void run(Task& task) {
    try {
      const Current current(device_);
      task();
    } catch (const CudaError& e) {
      device_.note(e);
      throw;
    }
  }

  void look_for_faults();
  void forget(const std::vector<FaultMark>& ended);
  bool has_ended(cudaError_t error, const char* what);

  Device& device_;
  const cudaStream_t native_;
  const bool is_owner_;
  const std::shared_ptr<Queue> queue_;
  std::atomic<bool> has_marks_ = false, has_faulted_ = false;

  std::mutex mutex_;                 // Guards what follows.
  std::shared_ptr<FaultSlot> slot_;  // NULL until a launch needs it.
  std::vector<FaultMark> inherited_;
  Outcome fault_;  // What bad data, or a process group, did to the stream.
};

// A new CUDA stream. Throws CudaError.
std::shared_ptr<Lane> make_lane(Device& device, int32_t priority);

}  // namespace bp::cuda
