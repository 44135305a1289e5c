// How a backend of this tree orders work: queues of tasks, points that queues wait for, and the
// threads that run tasks which cannot run on the caller's thread.
//
// A queue is in one of three states. An idle queue has no work. An owned queue has one thread that
// runs a task at once, without the queue's mutex. In a queued queue tasks wait in `items_`, and the
// executor takes them. If the first item waits for a point, the queue is parked at the point and
// costs the executor nothing. A submission to an idle inline queue costs two atomic operations
// besides the task itself.
//
// A thread that waits without a timeout can help: work that was offered to a point, such as a
// collective that blocks, then runs on the waiting thread. This saves the time in which another
// thread wakes up, and a processor is not shared by two threads for one piece of work.
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
  // Returns whether work that is already in the queue behind the failed work does not run.
  bool stops_queued_work() const { return status != BP_OK && !lets_queued_work_run; }

  bp_status status = BP_OK;
  std::string text;
  bool lets_queued_work_run = false;
};

// Refuses a submission to a stream that has failed with `failure`. The text has the failure's own.
bp_status refuse_behind(const bp_host& host, const Outcome& failure);

// A task throws it for a failure like that of a check on a device: work that is already in the
// queue still runs.
class DataFailure : public StatusError {
 public:
  using StatusError::StatusError;
};

// How many queues that wait for each other a thread looks through for work to help with.
inline constexpr int kMaxHelpedQueues = 8;

// A moment that queues and threads wait for: a record on a queue, or a signal of the host. A point
// completes once.
class Point {
 public:
  // Only a point that `is_timed` reads the clock.
  explicit Point(bool is_timed) : is_timed_(is_timed) {}

  // Sets the outcome and lets all waiters go. Returns false if the point was already complete.
  bool complete(Outcome outcome);

  bool is_complete() const;

  // The outcome and the time are valid once the point is complete.
  const Outcome& outcome() const { return outcome_; }
  int64_t time_ns() const { return time_ns_; }

  // Parks `queue` until the point completes. Returns false, and does nothing, if it is complete.
  bool park(const std::shared_ptr<Queue>& queue);

  // Blocks until the point is complete. Returns false if timeout_ns passed first. Without a
  // timeout, it helps first.
  bool wait(uint64_t timeout_ns);

  // Leaves work that completes the point, or brings that nearer. The first caller of take_offer()
  // runs it. A thread that helps is one; whoever offers makes sure that the point completes without
  // help. The work does not throw. It ends with the point if nobody takes it.
  void offer(std::function<void()> work);
  std::function<void()> take_offer();  // Returns nullptr if it was taken, or there is none.

  // Says that the point completes when `queue` has come to it. Nobody waits for the point yet.
  void set_source(std::weak_ptr<Queue> queue) { source_ = std::move(queue); }

  // Runs offered work in front of the point, if there is any. Returns whether it did. Work is
  // sought through up to `max_queues` queues, since queues may wait for each other.
  bool help(int max_queues = kMaxHelpedQueues);

 private:
  mutable std::mutex mutex_;
  std::condition_variable completed_;
  const bool is_timed_;
  bool is_complete_ = false;
  int64_t time_ns_ = 0;
  Outcome outcome_;
  std::vector<std::shared_ptr<Queue>> waiters_;
  std::function<void()> offer_;
  std::weak_ptr<Queue> source_;
};

// The threads that run queued work. There are up to `max_threads`; each starts when there is more
// work than the others can take. No thread starts before the first work, so that a process which
// has only enumerated devices may fork.
class Executor {
 public:
  explicit Executor(size_t max_threads = 1) : max_threads_(max_threads) {}
  ~Executor() { stop(); }

  // Starts a thread, if none runs yet.
  void start();

  // Lets a thread take items from `queue`. The caller makes sure that a queue is not scheduled
  // twice.
  void schedule(std::shared_ptr<Queue> queue);

  // Blocks until no queue is scheduled. Returns false if timeout_ns passed first.
  bool wait_idle(uint64_t timeout_ns = UINT64_MAX);

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

// The threads of a backend. A callback of an event may hold its thread for long, so it runs beside
// the threads of streams, which may be few.
class Executors {
 public:
  explicit Executors(size_t max_stream_threads = 1) : streams(max_stream_threads) {}

  // Blocks until no queue is scheduled. Returns false if timeout_ns passed first.
  bool wait_idle(uint64_t timeout_ns = UINT64_MAX);

  void stop();

  Executor streams, callbacks{64};
};

// One ordered queue of tasks. A task is a callable without arguments; it fails by throwing
// StatusError or anything else. The first failure stays, and the tasks behind it do not run. After
// a DataFailure, tasks that are already in the queue run, and only later submissions do not.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  Queue(const bp_host& host, Executor& executor, bool is_inline)
      : host_(host), executor_(executor), is_inline_(is_inline) {}

  // Submits `task`, or refuses it as admit() does.
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

  // Submits `task`, which gets the outcome of the work before it, and runs also after a failure. If
  // `anywhere` is true, it may run on the calling thread even if the queue is not inline, or on the
  // thread that completes a point before it; it is brief then, and takes no lock of its caller.
  bp_status submit_always(std::function<void(const Outcome&)> task, bool anywhere);

  // Makes later work wait for `point`, and fail if it carries a failure.
  bp_status wait_for(std::shared_ptr<Point> point);

  // Returns whether all work submitted so far has ended.
  bool is_idle() const { return state_.load(std::memory_order_acquire) == kIdle; }

  // Blocks until the work submitted so far has ended. Returns false if timeout_ns passed first.
  // Without a timeout, it helps first.
  bool wait(uint64_t timeout_ns);

  // Runs work that was offered to the point for which the first item waits, as Point::help() does.
  bool help(int max_queues = kMaxHelpedQueues);

  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  // Returns BP_OK, or the failure, with its text in the error slot of the calling thread.
  bp_status surface() const;

  // Returns BP_OK, or refuses a submission if the queue has failed.
  bp_status admit() const;

  void clear_failure();

  // Fails the queue with `loss` because its device is lost. This failure replaces an earlier one.
  // Queued work does not run, and the queue does not wait for points any more.
  void lose(Outcome loss);

  // Runs some items. Returns true if there are more to run. A thread that is not of the executor
  // stops in front of the first item that may not run anywhere.
  bool run_items(bool is_executor);

  // Lets a parked queue go on.
  void unpark();

  // Ends all waits for points with BP_ABORTED, because nothing will complete these points any more.
  void abandon();

 private:
  enum State : uint32_t { kIdle, kOwned, kQueued };

  struct Item {
    std::function<void(const Outcome&)> run = nullptr;
    std::shared_ptr<Point> point = nullptr;  // If set, the item waits for it and runs nothing.
    bool always = false;                     // The item runs also after a failure.
    bool anywhere = false;                   // The item may run on any thread, and is brief.
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
  Outcome failure() const;
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

  mutable std::mutex mutex_;  // Guards the members below; not held while a task runs.
  std::condition_variable ended_;
  std::deque<Item> items_;
  uint64_t queued_ = 0, done_ = 0;
  Outcome failure_;
  Outcome cleared_;     // The failure that clear_failure() ended last.
  uint64_t epoch_ = 0;  // The number of ended failures. Items of an older epoch do not run.
  bool is_parked_ = false, is_abandoned_ = false;
  bool is_running_item_ = false;  // A thread runs the first item without the lock.
  // The least count of done work for which a thread waits. The others that wait sleep until then.
  uint64_t wake_at_ = UINT64_MAX;
};

}  // namespace bp
