#include "backplane/shell/timeline.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <system_error>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

// If both sides are in one process, the page has two addresses there. This counter orders their
// accesses for tools that track addresses.
std::atomic<uint64_t> raises = 0;

}  // namespace

// ---- Shared values ------------------------------------------------------------------------------

// The content of the file, which is all zero in the beginning.
struct SharedValue::Page {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> changes;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is such a word");

SharedValue::SharedValue(const char* call, const std::string& kind, uint64_t value)
    : file_(call, kind, sizeof(Page)),
      mapping_(call, file_, sizeof(Page)),
      page_(*reinterpret_cast<Page*>(mapping_.address())) {
  page_.value = value;
}

SharedValue::SharedValue(const char* call, const std::string& kind, int descriptor)
    : file_(call, kind, sizeof(Page), descriptor),
      mapping_(call, file_, sizeof(Page)),
      page_(*reinterpret_cast<Page*>(mapping_.address())) {}

uint64_t SharedValue::get() const {
  const uint64_t value = page_.value.load();
  raises.load();
  return value;
}

bool SharedValue::raise(uint64_t value) {
  raises.fetch_add(1);
  uint64_t present = page_.value.load();
  do {
    if (value <= present) return false;
  } while (!page_.value.compare_exchange_weak(present, value));
  wake();
  return true;
}

// A process may be killed between the two steps of raise(), so the wait ends after a moment.
void SharedValue::wait_above(uint64_t seen, const std::atomic<bool>& is_stopped) const {
  constexpr timespec kMoment{0, 100'000'000};
  const uint32_t changes = page_.changes.load();
  if (page_.value.load() > seen || is_stopped.load()) return;
  // The futex is not private, because other processes wake it.
  syscall(SYS_futex, &page_.changes, FUTEX_WAIT, changes, &kMoment, nullptr, 0);
}

void SharedValue::wake() {
  page_.changes.fetch_add(1);
  syscall(SYS_futex, &page_.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// ---- Timelines ----------------------------------------------------------------------------------

uint64_t Timeline::value() const {
  const std::lock_guard lock(mutex_);
  return present();
}

Outcome Timeline::outcome_at(uint64_t value) const {
  return failure_.status != BP_OK && failed_at_ <= value ? failure_ : Outcome{};
}

Timeline::Due Timeline::take_due(uint64_t value) {
  Due due;
  const auto end = waiters_.upper_bound(value);
  for (auto each = waiters_.begin(); each != end; ++each) {
    due.emplace_back(each->second, outcome_at(each->first));
  }
  waiters_.erase(waiters_.begin(), end);
  return due;
}

void Timeline::complete(Due due) {
  for (auto& [point, outcome] : due) point->complete(std::move(outcome));
}

bool Timeline::raise(uint64_t value, Outcome outcome) {
  Due due;
  {
    const std::lock_guard lock(mutex_);
    if (shared_ != nullptr ? !shared_->raise(value) : value <= value_) return false;
    value_ = value;
    if (outcome.status != BP_OK && failure_.status == BP_OK) {
      failure_ = std::move(outcome);
      failed_at_ = value;
    }
    due = take_due(present());
  }
  complete(std::move(due));
  return true;
}

std::shared_ptr<Point> Timeline::when(uint64_t value) {
  auto point = std::make_shared<Point>(false);
  const std::lock_guard lock(mutex_);
  if (loss_.status != BP_OK) {
    point->complete(loss_);
  } else if (value <= present()) {
    point->complete(outcome_at(value));
  } else {
    start_watch();
    waiters_.emplace(value, point);
  }
  return point;
}

bool Timeline::wait(uint64_t value, uint64_t timeout_ns, Outcome& outcome) {
  if (timeout_ns == 0) {
    const std::lock_guard lock(mutex_);
    if (loss_.status == BP_OK && value > present()) return false;
    outcome = loss_.status != BP_OK ? loss_ : outcome_at(value);
    return true;
  }
  const std::shared_ptr<Point> point = when(value);
  if (!point->wait(timeout_ns)) return forget(value, point), false;
  outcome = point->outcome();
  return true;
}

void Timeline::forget(uint64_t value, const std::shared_ptr<Point>& point) {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = waiters_.equal_range(value);
  const auto found =
      std::find_if(begin, end, [&](const auto& each) { return each.second == point; });
  if (found != end) waiters_.erase(found);
}

bool Timeline::is_waited_for() const {
  const std::lock_guard lock(mutex_);
  return !waiters_.empty();
}

void Timeline::clear_failure() {
  const std::lock_guard lock(mutex_);
  failure_ = {};
}

void Timeline::lose(const Outcome& loss) {
  Due due;
  {
    const std::lock_guard lock(mutex_);
    loss_ = loss;
    for (const auto& [value, point] : waiters_) due.emplace_back(point, loss);
    waiters_.clear();
  }
  complete(std::move(due));
}

// ---- The watch of a shared value ----------------------------------------------------------------

// Makes sure that a thread watches the value, if processes share it. The caller holds the lock.
void Timeline::start_watch() {
  if (shared_ == nullptr || is_watching_ || is_stopped_) return;
  if (watcher_.joinable()) watcher_.join();  // It has nothing left to do but to end.
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    throw StatusError(BP_OUT_OF_MEMORY, "semaphore: no thread is left to wait for another process");
  }
  is_watching_ = true;
}

void Timeline::watch() {
  std::unique_lock lock(mutex_);
  while (!waiters_.empty() && !is_stopped_) {
    const uint64_t seen = present();
    Due due = take_due(seen);
    const bool is_waited_for = !waiters_.empty();
    lock.unlock();
    complete(std::move(due));
    if (is_waited_for) shared_->wait_above(seen, is_stopped_);
    lock.lock();
  }
  is_watching_ = false;
}

void Timeline::stop() {
  std::thread watcher;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    watcher.swap(watcher_);
  }
  if (!watcher.joinable()) return;
  shared_->wake();
  watcher.join();
}

// ---- Timelines without semaphores ---------------------------------------------------------------

void KeptTimelines::add(std::shared_ptr<Timeline> timeline) {
  std::vector<std::shared_ptr<Timeline>> ended;  // They end without the lock.
  const std::lock_guard lock(mutex_);
  const auto is_of_use = [](const std::shared_ptr<Timeline>& each) {
    return each->shared() != nullptr && each->is_waited_for();
  };
  const auto end = std::stable_partition(timelines_.begin(), timelines_.end(), is_of_use);
  ended.assign(end, timelines_.end());
  timelines_.erase(end, timelines_.end());
  if (is_of_use(timeline)) timelines_.push_back(std::move(timeline));
}

std::vector<std::shared_ptr<Timeline>> KeptTimelines::all() const {
  const std::lock_guard lock(mutex_);
  return timelines_;
}

}  // namespace bp
