// The calls of a cache to its backend that have not returned. The cache holds no lock during them:
// who needs what they will change waits for them here.
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

// Thread-safe. Its lock is a leaf: nothing else is locked or called under it.
class BackendCalls {
 public:
  // One call, or some that belong together, from its construction to its end.
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

    // From now on the backend has the stream of `pool`; of no pool any more if it is NULL. To be
    // called under the lock that guards Pool::stream.
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
      const Pool* pool;  // Whose stream the backend has.
    };

    BackendCalls& calls_;
    std::list<Running>::iterator own_;
  };

  // Blocks until no other thread lends the stream of `pool`, which nobody may lend anew.
  void wait_for_stream(const Pool* pool) {
    const auto self = std::this_thread::get_id();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::ranges::none_of(running_, [&](const Call::Running& other) {
        return other.pool == pool && other.thread != self;
      });
    });
  }

  // Blocks until the calls are over that other threads had begun before. A thread that waits here
  // itself, because its backend has called the host, is not waited for.
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
  // Guarded by mutex_.
  uint64_t next_number_ = 0;
  std::list<Call::Running> running_;
  std::vector<std::thread::id> waiting_;  // In wait_for_others().
};

}  // namespace bp::services
