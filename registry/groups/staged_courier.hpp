// Copies what was received to devices that have no pinned memory. A copy from other memory may read
// it during the call, so it is submitted when the transport is done: by a thread, since callbacks
// may not call a backend.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "backplane/host.h"

namespace bp::core {

// It is thread-safe. The destructor does the jobs that are left.
class StagedCourier {
 public:
  StagedCourier() = default;
  StagedCourier(const StagedCourier&) = delete;
  ~StagedCourier();

  // Runs `job` on the thread of the courier, behind earlier ones. Callbacks may call it.
  void post(std::function<void()> job);

  // Returns a stream of the courier's own on this device, or NULL, with an error text, if none can
  // be made. Jobs alone call it.
  bp_stream* stream_of(const bp_target& target);

 private:
  void run();

  std::map<const bp_target*, bp_stream*> streams_;  // The thread alone uses it.
  std::mutex mutex_;
  std::condition_variable changed_;
  // mutex_ guards the members below.
  std::deque<std::function<void()>> jobs_;
  bool is_ending_ = false;
  std::thread thread_;  // Begins with the first job.
};

}  // namespace bp::core
