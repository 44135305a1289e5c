#include "backends/vulkan/watcher.hpp"

#include <chrono>
#include <utility>

namespace bp::vulkan {

void Watcher::add(Ticket ticket, std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  jobs_.emplace(ticket, std::move(job));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  added_.notify_one();
}

bool Watcher::is_done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() || jobs_.begin()->first > ticket;
}

bool Watcher::wait(Ticket ticket, uint64_t timeout_ns) {
  constexpr uint64_t kForeverNs = uint64_t{100} * 365 * 24 * 3600 * 1'000'000'000;
  std::unique_lock lock(mutex_);
  const auto has_run = [&] { return jobs_.empty() || jobs_.begin()->first > ticket; };
  if (timeout_ns >= kForeverNs) {
    ran_.wait(lock, has_run);
    return true;
  }
  return ran_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), has_run);
}

void Watcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    added_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Watcher::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [&] { return is_stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const auto next = jobs_.begin();
    const Ticket ticket = next->first;
    {
      // What the job holds is released before the job counts as run.
      const std::function<void()> job = std::move(next->second);
      lock.unlock();
      wait_(ticket);
      job();
    }
    lock.lock();
    jobs_.erase(next);
    ran_.notify_all();
  }
}

}  // namespace bp::vulkan
