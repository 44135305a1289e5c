// Wakes the thread of pump.hpp. Groups share it with the thread, because their streams may come to
// a call when the instance of the backend ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace bp::mpi {

class Alarm {
 public:
  Alarm() = default;
  Alarm(const Alarm&) = delete;

  void ring() {
    const std::lock_guard lock(mutex_);
    is_ringing_ = true;
    changed_.notify_all();
  }

  // Waits until it rings, but no longer than `duration`.
  void wait(std::chrono::nanoseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return is_ringing_; });
    is_ringing_ = false;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_ringing_; });
    is_ringing_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ringing_ = false;
};

}  // namespace bp::mpi
