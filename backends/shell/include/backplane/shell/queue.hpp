// How a backend of this tree orders work: queues of tasks, points that they wait for, and the
// threads that run what cannot run in the caller.
//
// A queue is in one of three states. Idle: nothing is submitted. Owned: one thread runs a task at
// once, without the queue's mutex. Queued: tasks wait in `items_`, and the executor takes them; a
// queue whose first item waits for a point is parked there and costs the executor nothing. A
// submission to an idle queue that is inline costs two atomic operations above the task itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backplane/shell/boundary.hpp"

namespace bp {

class Queue;

// How work ended: BP_OK, or a failure and its text.
struct Outcome {
  // Whether what was submitted already and stands behind it does not run.
  bool stops_queued_work() const { return status != BP_OK && !lets_queued_work_run; }

  bp_status status = BP_OK;
  std::string text;
  bool lets_queued_work_run = false;
};

// What a task throws to fail as a check on a device does: work that is submitted already still
// runs.
class DataFailure : public StatusError {
 public:
  using StatusError::StatusError;
};

// A moment that others wait for: work recorded on a queue, or the host's signal. Completes once.
class Point {
 public:
  // Only one that `is_timed` asks the clock.
  explicit Point(bool is_timed) : is_timed_(is_timed) {}

  // Sets the outcome and lets all waiters go. False if it was complete already.
  bool complete(Outcome outcome);

  bool is_complete() const;

  // Valid once it is complete.
  const Outcome& outcome() const { return outcome_; }
  int64_t time_ns() const { return time_ns_; }

  // Parks `queue` until it completes. False if it is complete: then nothing was done.
  bool park(const std::shared_ptr<Queue>& queue);

  // False if timeout_ns passed before it was complete.
  bool wait(uint64_t timeout_ns);

 private:
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  const bool is_timed_;
  bool is_complete_ = false;
  int64_t time_ns_ = 0;
  Outcome outcome_;
  std::vector<std::shared_ptr<Queue>> waiters_;
};

// The threads that run queued work: up to `max_threads`, each started when there is more to do than
// the others can take. None starts before the first work, so that a process which has only looked
// at the devices may fork.
class Executor {
 public:
  explicit Executor(size_t max_threads = 1) : max_threads_(max_threads) {}
  ~Executor() { stop(); }

  // Starts a thread, if none runs yet.
  void start();

  // Lets a thread take items from `queue`. The caller makes sure that a queue is not scheduled
  // twice.
  void schedule(std::shared_ptr<Queue> queue);

  // Blocks until no queue is scheduled.
  void wait_idle();

  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::shared_ptr<Queue>> scheduled_;
  const size_t max_threads_;
  size_t running_ = 0,
         waiting_ = 0;  // Threads that run a queue, and those that have nothing to do.
  bool is_stopping_ = false;
  std::atomic<bool> is_started_ = false;
  std::vector<std::thread> threads_;
};

// One ordered queue of tasks. A task is a callable without arguments that throws StatusError, or
// anything else, to fail. The first failure stays: what comes behind it does not run, unless it is
// a DataFailure, behind which only what was submitted later does not.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue(const bp_host& host, Executor& executor, bool is_inline)
      : host_(host), executor_(executor), is_inline_(is_inline) {}

  // Submits `task`, or returns the failure of the queue with its text.
  template <typename Task>
  bp_status submit(Task&& task) {
    if (try_run_here(task)) return BP_OK;
    return enqueue({.run = [task = std::forward<Task>(task)](const Outcome&) mutable { task(); }});
  }

  // Runs `task` now if the queue is inline and idle and has not failed, else returns false.
  template <typename Task>
  bool try_run_here(Task& task) {
    if (!is_inline_ || !try_own()) return false;
    const bool runs = !has_failed();
    if (runs) run_task(task);
    disown();
    return runs;
  }

  // Submits `task`, which gets the outcome of what came before it, and runs also after a failure.
  // May run here if `anywhere`, also if the queue is not inline.
  bp_status submit_always(std::function<void(const Outcome&)> task, bool anywhere);

  // Makes later work wait for `point`, and fail if it carries a failure.
  bp_status wait_for(std::shared_ptr<Point> point);

  // Whether everything submitted so far has ended.
  bool is_idle() const { return state_.load(std::memory_order_acquire) == kIdle; }

  // False if timeout_ns passed before the work submitted so far had ended.
  bool wait(uint64_t timeout_ns);

  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  // BP_OK, or the failure with its text in the error slot of the calling thread.
  bp_status surface() const;

  void clear_failure();

  // Fails the queue with `loss`, instead of what it failed with before: the device is gone. What is
  // queued does not run, and no wait holds it any more.
  void lose(Outcome loss);

  // The executor's side: runs some items. True if there are more to run.
  bool run_items();

  // Lets a parked queue go on.
  void unpark();

  // Ends all waits with BP_ABORTED: nothing will signal them any more.
  void abandon();

 private:
  enum State : uint32_t { kIdle, kOwned, kQueued };

  struct Item {
    std::function<void(const Outcome&)> run = nullptr;
    std::shared_ptr<Point> point = nullptr;  // Waits for it instead of running anything.
    bool always = false;                     // Runs also after a failure.
    uint64_t epoch = 0;
  };

  bool try_own() {
    uint32_t expected = kIdle;
    return state_.compare_exchange_strong(expected, kOwned, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }

  void disown() {
    uint32_t expected = kOwned;
    if (!state_.compare_exchange_strong(expected, kIdle, std::memory_order_release,
                                        std::memory_order_relaxed)) {
      schedule();  // Another thread submitted meanwhile.
    }
  }

  template <typename Task>
  void run_task(Task& task) noexcept {
    try {
      task();
    } catch (const DataFailure& e) {
      fail(e.status(), e.what(), true);
    } catch (const StatusError& e) {
      fail(e.status(), e.what());
    } catch (const std::bad_alloc&) {
      fail(BP_OUT_OF_MEMORY, "out of host memory");
    } catch (const std::exception& e) {
      fail(BP_INTERNAL, e.what());
    } catch (...) {
      fail(BP_INTERNAL, "unknown exception");
    }
  }

  bp_status enqueue(Item item);
  void schedule();
  void fail(bp_status status, const char* text, bool lets_queued_work_run = false) noexcept;
  void fail(const Outcome& outcome) noexcept {
    fail(outcome.status, outcome.text.c_str(), outcome.lets_queued_work_run);
  }
  Outcome outcome_for(uint64_t epoch) const;
  void run_item(Item& item, const Outcome& before);

  const bp_host& host_;
  Executor& executor_;
  const bool is_inline_;
  std::atomic<uint32_t> state_ = kIdle;
  std::atomic<bool> failed_ = false;

  mutable std::mutex mutex_;  // Guards what follows; never held while a task runs.
  std::condition_variable ended_;
  std::deque<Item> items_;
  uint64_t queued_ = 0, done_ = 0;
  Outcome failure_;
  Outcome cleared_;     // The failure that clear_failure() ended last, and
  uint64_t epoch_ = 0;  // how often it did: older items stay behind the failure they came after.
  bool is_parked_ = false, is_abandoned_ = false;
};

}  // namespace bp
