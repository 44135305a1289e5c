#include "backplane/shell/queue.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "backplane/shell/deadline.hpp"

namespace bp {
namespace {

using Clock = std::chrono::steady_clock;

// The number of items of one queue that run before another queue has its turn.
constexpr int kItemsPerTurn = 16;

}  // namespace

bp_status refuse_behind(const bp_host& host, const Outcome& failure) {
  if (failure.status == BP_DEVICE_LOST) {
    return host.set_error(host.self, BP_DEVICE_LOST, failure.text.c_str());
  }
  return host.set_error(host.self, BP_STREAM_FAILED,
                        ("the stream has failed: " + failure.text).c_str());
}

// ---- Point --------------------------------------------------------------------------------------

bool Point::complete(Outcome outcome) {
  std::vector<std::shared_ptr<Queue>> waiters;
  std::function<void()> offer;  // It may hold the point itself.
  {
    const std::lock_guard lock(mutex_);
    if (is_complete_) return false;
    offer.swap(offer_);
    outcome_ = std::move(outcome);
    if (is_timed_) time_ns_ = Clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    is_complete_ = true;
    waiters.swap(waiters_);
    completed_.notify_all();
  }
  for (const std::shared_ptr<Queue>& waiter : waiters) waiter->unpark();
  return true;
}

bool Point::is_complete() const {
  const std::lock_guard lock(mutex_);
  return is_complete_;
}

bool Point::park(const std::shared_ptr<Queue>& queue) {
  const std::lock_guard lock(mutex_);
  if (is_complete_) return false;
  waiters_.push_back(queue);
  return true;
}

bool Point::wait(uint64_t timeout_ns) {
  while (timeout_ns == UINT64_MAX && help()) {
  }
  std::unique_lock lock(mutex_);
  return wait_on(completed_, lock, timeout_ns, [&] { return is_complete_; });
}

void Point::offer(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!is_complete_) offer_ = std::move(work);
}

std::function<void()> Point::take_offer() {
  const std::lock_guard lock(mutex_);
  return std::exchange(offer_, nullptr);
}

bool Point::help(int max_queues) {
  if (is_complete()) return false;
  if (const std::function<void()> work = take_offer()) return work(), true;
  const std::shared_ptr<Queue> source = source_.lock();
  return source != nullptr && max_queues > 0 && source->help(max_queues - 1);
}

// ---- Executor -----------------------------------------------------------------------------------

void Executor::start() {
  if (is_started_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (is_started_) return;
  threads_.emplace_back([this] { run(); });
  is_started_ = true;
}

void Executor::schedule(std::shared_ptr<Queue> queue) {
  const std::lock_guard lock(mutex_);
  scheduled_.push_back(std::move(queue));
  if (scheduled_.size() > waiting_ && threads_.size() < max_threads_) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      // The system has no more threads, so the running threads take the work.
    }
  }
  changed_.notify_one();
}

bool Executor::wait_idle(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  return wait_on(idle_, lock, timeout_ns, [&] { return scheduled_.empty() && running_ == 0; });
}

void Executor::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Executor::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++waiting_;
    changed_.wait(lock, [&] { return is_stopping_ || !scheduled_.empty(); });
    --waiting_;
    if (scheduled_.empty()) return;
    std::shared_ptr<Queue> queue = std::move(scheduled_.front());
    scheduled_.pop_front();
    ++running_;
    lock.unlock();
    const bool has_more = queue->run_items(true);
    if (!has_more) queue.reset();  // This may end a destroyed stream.
    lock.lock();
    if (has_more) scheduled_.push_back(std::move(queue));
    --running_;
    if (scheduled_.empty() && running_ == 0) idle_.notify_all();
  }
}

// Work and callbacks may schedule each other.
bool Executors::wait_idle(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  do {
    if (!streams.wait_idle(deadline.left_ns())) return false;
    if (!callbacks.wait_idle(deadline.left_ns())) return false;
  } while (!streams.wait_idle(0));
  return true;
}

void Executors::stop() {
  streams.stop();
  callbacks.stop();
}

// ---- Queue --------------------------------------------------------------------------------------

bp_status Queue::enqueue(Item item) {
  executor_.start();
  const bool runs_anywhere = item.anywhere;
  uint32_t before = kQueued;
  Outcome failure;
  {
    const std::lock_guard lock(mutex_);
    if (!item.always && has_failed()) failure = failure_;
    if (failure.status == BP_OK) {
      item.epoch = epoch_;
      items_.push_back(std::move(item));
      ++queued_;
      before = state_.exchange(kQueued, std::memory_order_acq_rel);
    }
  }
  if (failure.status != BP_OK) return refuse_behind(host_, failure);
  // In the state kOwned, the owner schedules the queue when its task has ended. In the state
  // kQueued, the queue is already scheduled. An item that may run anywhere needs no other thread.
  if (before == kIdle && (!runs_anywhere || run_items(false))) schedule();
  return BP_OK;
}

void Queue::schedule() { executor_.schedule(shared_from_this()); }

bp_status Queue::submit_always(std::function<void(const Outcome&)> task, bool anywhere) {
  if ((is_inline_ || anywhere) && try_own()) {
    auto with_outcome = [&] { task(outcome_for(UINT64_MAX)); };
    run_task(with_outcome);
    disown();
    return BP_OK;
  }
  return enqueue({.run = std::move(task), .always = true, .anywhere = anywhere});
}

bp_status Queue::wait_for(std::shared_ptr<Point> point) {
  if (point->is_complete() && try_own()) {
    const bool is_taken = !has_failed();
    const Outcome& outcome = point->outcome();
    if (is_taken && outcome.status != BP_OK) fail(outcome);
    disown();
    if (is_taken) return BP_OK;
  }
  return enqueue({.point = std::move(point), .anywhere = true});
}

bool Queue::wait(uint64_t timeout_ns) {
  if (is_idle()) return true;
  if (timeout_ns == 0) return false;
  // If another thread runs a task at once, an item that does nothing marks the end of that task.
  if (state_.load(std::memory_order_acquire) == kOwned) {
    enqueue({.run = [](const Outcome&) {}, .always = true});
  }
  std::unique_lock lock(mutex_);
  const uint64_t last = queued_;
  if (timeout_ns == UINT64_MAX) {
    while (done_ < last) {
      lock.unlock();
      const bool has_helped = help();
      lock.lock();
      if (!has_helped) break;
    }
  }
  return wait_on(ended_, lock, timeout_ns, [&] {
    if (done_ >= last) return true;
    wake_at_ = std::min(wake_at_, last);
    return false;
  });
}

bool Queue::help(int max_queues) {
  std::shared_ptr<Point> point;
  {
    const std::lock_guard lock(mutex_);
    if (!is_running_item_ && !items_.empty()) point = items_.front().point;
  }
  return point != nullptr && point->help(max_queues);
}

// Returns a copy, because the host is told without the lock.
Outcome Queue::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bp_status Queue::surface() const {
  if (!has_failed()) return BP_OK;
  const Outcome failure = this->failure();
  if (failure.status == BP_OK) return BP_OK;
  return host_.set_error(host_.self, failure.status, failure.text.c_str());
}

bp_status Queue::admit() const {
  if (!has_failed()) return BP_OK;
  const Outcome failure = this->failure();
  return failure.status == BP_OK ? bp_status{BP_OK} : refuse_behind(host_, failure);
}

void Queue::clear_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_.status == BP_OK) return;
  cleared_ = std::exchange(failure_, {});
  ++epoch_;
  failed_.store(false, std::memory_order_release);
}

void Queue::lose(Outcome loss) {
  {
    const std::lock_guard lock(mutex_);
    cleared_ = failure_ = std::move(loss);  // No older item runs.
    failed_.store(true, std::memory_order_release);
  }
  unpark();
}

void Queue::fail(bp_status status, const char* text, bool lets_queued_work_run) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_.status != BP_OK) {
    failure_.lets_queued_work_run &= lets_queued_work_run;
    return;
  }
  failure_.status = status;
  failure_.lets_queued_work_run = lets_queued_work_run;
  try {
    failure_.text = text;
  } catch (const std::bad_alloc&) {
    failure_.text.clear();
  }
  failed_.store(true, std::memory_order_release);
}

Outcome Queue::outcome_for(uint64_t epoch) const {
  if (!has_failed() && epoch == UINT64_MAX) return {};
  const std::lock_guard lock(mutex_);
  return epoch < epoch_ ? cleared_ : failure_;
}

void Queue::run_item(Item& item, const Outcome& before) {
  if (item.point != nullptr) {
    const Outcome& outcome = item.point->outcome();
    if (before.stops_queued_work() || !item.point->is_complete()) return;
    if (outcome.status != BP_OK) fail(outcome);
  } else if (item.always || !before.stops_queued_work()) {
    auto task = [&] { item.run(before); };
    run_task(task);
  }
}

bool Queue::run_items(bool is_executor) {
  std::unique_lock lock(mutex_);
  for (int turn = 0; !items_.empty(); ++turn) {
    if (turn == kItemsPerTurn || (!is_executor && !items_.front().anywhere)) return true;
    Item& item = items_.front();  // A deque does not move it.
    const bool is_skipped = (item.epoch < epoch_ ? cleared_ : failure_).stops_queued_work();
    if (item.point != nullptr && !is_skipped && !is_abandoned_) {
      is_parked_ = item.point->park(shared_from_this());
      if (is_parked_) return false;
    }
    if (item.point != nullptr && is_abandoned_ && !item.point->is_complete() && !is_skipped) {
      cleared_ =
          failure_ = {BP_ABORTED, "the backend was shut down while the stream waited for an event"};
      failed_.store(true, std::memory_order_release);
    }
    is_running_item_ = true;
    lock.unlock();
    run_item(item, outcome_for(item.epoch));
    // What a task holds, such as memory that was freed meanwhile, ends before the work counts as
    // done. A thread that has waited for the work must not see that memory end later.
    item.run = nullptr;
    item.point = nullptr;
    lock.lock();
    is_running_item_ = false;
    items_.pop_front();
    ++done_;
    const bool is_last = items_.empty();
    // After this store another thread may own or schedule the queue, so this thread does not touch
    // it again.
    if (is_last) state_.store(kIdle, std::memory_order_release);
    if (done_ >= wake_at_) {
      wake_at_ = UINT64_MAX;
      ended_.notify_all();
    }
    if (is_last) return false;
  }
  return false;
}

void Queue::unpark() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_parked_) return;
    is_parked_ = false;
  }
  // A thread that waits for the queue, or for a record behind the point, is woken without a thread
  // of the executor between them.
  if (run_items(false)) schedule();
}

void Queue::abandon() {
  {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
  }
  unpark();
}

}  // namespace bp
