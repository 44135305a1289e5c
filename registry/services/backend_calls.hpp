// Keeps a list of the calls from a cache to its backend that have not returned. The cache holds no
// lock during such a call. A thread that needs the result of the call waits for it here.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace bp::services {

struct Pool;

// The running calls of one cache. It is thread-safe. While it holds its lock, it takes no other
// lock and calls nothing.
class BackendCalls {
 public:
  // One call, or several that belong together. The object lives while they run.
  class Call {
   public:
    explicit Call(BackendCalls& calls) : calls_(calls) {
      const std::lock_guard lock(calls.mutex_);
      own_ = calls.running_.insert(calls.running_.end(),
                                   {calls.next_number_++, std::this_thread::get_id(), nullptr});
    }
    Call(const Call&) = delete;
    ~Call() {
      {
        const std::lock_guard lock(calls_.mutex_);
        calls_.running_.erase(own_);
      }
      calls_.changed_.notify_all();
    }

    // Says that from now on the backend uses the stream of `pool`, or no stream if `pool` is NULL.
    // If `pool` is not NULL, the caller holds the lock that guards Pool::stream.
    void lend_stream(const Pool* pool) {
      {
        const std::lock_guard lock(calls_.mutex_);
        own_->pool = pool;
      }
      calls_.changed_.notify_all();
    }

   private:
    friend class BackendCalls;
    struct Running {
      uint64_t number;
      std::thread::id thread;
      const Pool* pool;  // The backend uses the stream of this pool.
    };

    BackendCalls& calls_;
    std::list<Running>::iterator own_;
  };

  // Blocks until no call of another thread uses the stream of `pool`. The caller makes sure that no
  // new call uses it.
  void wait_for_stream(const Pool* pool) {
    const auto self = std::this_thread::get_id();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::ranges::none_of(running_, [&](const Call::Running& other) {
        return other.pool == pool && other.thread != self;
      });
    });
  }

  // Blocks until the calls have returned that other threads began earlier. It does not wait for a
  // thread that is in this function itself, because its backend has called the host.
  void wait_for_others() {
    const auto self = std::this_thread::get_id();
    std::unique_lock lock(mutex_);
    const uint64_t end = next_number_;
    waiting_.push_back(self);
    changed_.notify_all();
    changed_.wait(lock, [&] {
      return std::ranges::none_of(running_, [&](const Call::Running& other) {
        return other.number < end && std::ranges::count(waiting_, other.thread) == 0;
      });
    });
    waiting_.erase(std::ranges::find(waiting_, self));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // mutex_ guards the members below.
  uint64_t next_number_ = 0;
  std::list<Call::Running> running_;
  std::vector<std::thread::id> waiting_;  // The threads that are in wait_for_others().
};

}  // namespace bp::services
