// The device's side of a stream: a CUDA stream, and what the host must remember about it.
//
// Work goes to the CUDA stream in the call that submits it, unless the stream is held. A stream is
// held while it waits for an event that only the host can complete, or for an event that was
// recorded behind such a wait. The work of a held stream stays on the host, in a Queue, until the
// event completes or fails, and is submitted then. So no CUDA call blocks behind a signal that has
// not come, and work behind a failure does not run.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/bad_data.hpp"
#include "backends/cuda/device.hpp"
#include "backplane/shell/queue.hpp"

namespace bp::cuda {

// The indices that a launch checks. The names live as long as the kernel.
struct CheckedIndices {
  const char* op = nullptr;
  const char* argument = nullptr;
  const std::byte* first = nullptr;  // The first element of the argument.
  int64_t item_size_bytes = 1;
  int64_t extent = 0;  // Indices are from 0 to below it.
};

// Where the kernels of one stream report bad data. Read at any time; never goes back to 0. Kernels
// that may report there must have ended before it does, because others use its word then.
class BadDataSlot {
 public:
  explicit BadDataSlot(Device& device);
  BadDataSlot(const BadDataSlot&) = delete;
  ~BadDataSlot();

  // Returns the reporter of the next launch that checks indices.
  Reporter next(const CheckedIndices& checked);

  // Returns the number of launches that may have reported so far.
  uint32_t last() const { return last_.load(std::memory_order_acquire); }

  // Returns the launch that reported first, or 0.
  uint32_t reported() const;
  std::string text() const;

 private:
  Device& device_;
  BadDataReport* const report_;  // The device reaches it by the same address.
  std::atomic<uint32_t> last_ = 0;
  mutable std::mutex mutex_;
  std::array<CheckedIndices, 256> launches_{};  // The latest launches.
};

// The launches of another stream whose bad data is that of whoever waits for them.
struct BadDataMark {
  std::shared_ptr<BadDataSlot> slot;
  uint32_t last;

  bool has_fired() const {
    const uint32_t reported = slot->reported();
    return reported != 0 && reported <= last;
  }
};

// One CUDA event, which returns to its device when nobody needs it.
class NativeEvent {
 public:
  NativeEvent(Device& device, bool is_timed);
  NativeEvent(const NativeEvent&) = delete;
  ~NativeEvent();

  Device& device() const { return device_; }
  cudaEvent_t get() const { return event_; }

  // These functions throw CudaError. synchronize() blocks until the event is complete.
  bool is_complete() const;
  void synchronize() const;

 private:
  Device& device_;
  cudaEvent_t event_ = nullptr;
};

// One record of an event.
struct Record {
  // Completes when the record was submitted to CUDA, or could not be submitted. For an event that
  // the host completes, it is the host's signal.
  const std::shared_ptr<Point> submitted = std::make_shared<Point>(false);
  std::shared_ptr<NativeEvent> native;  // Valid once `submitted` is complete; NULL for a signal.
  std::vector<BadDataMark> marks;       // The same.
  Outcome error;                        // The same: why it was not submitted.
};

// One CUDA stream, and everything that orders the work for it. It lives until its work has been
// submitted, even if the handle is destroyed.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // The lane owns `native` if `is_owner` is true.
  Lane(Device& device, cudaStream_t native, bool is_owner);
  Lane(const Lane&) = delete;
  ~Lane();

  Device& device() const { return device_; }
  cudaStream_t native() const { return native_; }

  // Returns whether submissions go to CUDA at once.
  bool is_free() const { return queue_->is_idle(); }

  // Returns BP_OK, or the failure of the stream, with its text in the error slot.
  bp_status surface();

  // Returns BP_OK, or refuses a submission if the stream has failed.
  bp_status admit();

  // Submits `task`, a callable that returns nothing, calls CUDA, and fails by throwing. If the
  // stream is free, the task runs on the calling thread, and the caller gets its exception. Else
  // the task is kept, and its exception fails the stream.
  template <typename Task>
  bp_status submit(Task&& task) {
    if (is_free()) {
      const bp_status status = admit();
      if (status == BP_OK) run(task);
      return status;
    }
    return hold(std::forward<Task>(task));
  }

  // Keeps `task` until the stream is free, or fails.
  template <typename Task>
  bp_status hold(Task&& task) {
    const bp_status status = admit();
    if (status != BP_OK) return status;
    return queue_->submit([lane = shared_from_this(), task = std::forward<Task>(task)]() mutable {
      lane->run(task);
    });
  }

  // Submits a task that also runs behind a failure. The task gets the outcome of the work before
  // it.
  bp_status submit_always(std::function<void(const Outcome&)> task);

  // Makes later work wait for `record`, or for a point that the host completes.
  bp_status wait_for(const std::shared_ptr<Record>& record);
  bp_status wait_for(const std::shared_ptr<Point>& point);

  // A launch that may report bad data, and the word where the next ones do.
  Reporter next_reporter(const CheckedIndices& checked);
  void use(std::shared_ptr<BadDataSlot> slot);

  std::vector<BadDataMark> marks();
  void inherit(const std::vector<BadDataMark>& marks);

  // Returns whether all work submitted so far has ended. Throws CudaError.
  bool is_done();

  // The same, but work that is held back does not count.
  bool has_ended_on_device();

  // Blocks until the work submitted so far has ended. Returns false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns);

  void clear_failure();
  // Fails the stream, at once if it is free. The first failure is kept.
  void fail(bp_status status, const std::string& text);
  // Fails the stream at once, for work that has ended on the device. Work that is held still runs.
  void fail_now(bp_status status, const std::string& text);
  void abandon() { queue_->abandon(); }

  // Returns the outcome of the work in front of work that is submitted now.
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

  bool has_own_failure();
  void look_for_bad_data();
  void forget(const std::vector<BadDataMark>& ended);
  void retire(std::vector<std::shared_ptr<BadDataSlot>> slots);
  bool has_ended(cudaError_t error, const char* what);

  Device& device_;
  const cudaStream_t native_;
  const bool is_owner_;
  const std::shared_ptr<Queue> queue_;
  std::atomic<bool> has_marks_ = false, has_failed_ = false;

  std::mutex mutex_;                   // Guards what follows.
  std::shared_ptr<BadDataSlot> slot_;  // NULL until a launch needs it.
  std::vector<BadDataMark> inherited_;
  Outcome failure_;  // What bad data, or a process group, did to the stream.
};

// Makes a CUDA stream and its lane. Throws CudaError.
std::shared_ptr<Lane> make_lane(Device& device, int32_t priority);

}  // namespace bp::cuda
