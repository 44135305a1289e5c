// Waits with a timeout: measures how much of it is left, for calls that wait more than once, and
// waits on a condition variable.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace bp {

// Waits until is_done() is true. Returns false if timeout_ns passed first. `lock` holds the mutex
// of `changed`.
template <typename Predicate>
bool wait_on(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
             uint64_t timeout_ns, Predicate is_done) {
  // A deadline beyond a century could overflow, so a longer timeout never passes.
  constexpr uint64_t kForeverNs = uint64_t{100} * 365 * 24 * 3600 * 1'000'000'000;
  if (timeout_ns == 0) return is_done();
  if (timeout_ns >= kForeverNs) {
    changed.wait(lock, is_done);
    return true;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  return changed.wait_until(lock, end, is_done);
}

class Deadline {
 public:
  // The timeout begins now.
  explicit Deadline(uint64_t timeout_ns) : timeout_ns_(timeout_ns), begin_(Clock::now()) {}

  // Returns the rest of the timeout, or 0 once it has passed. A timeout of UINT64_MAX never passes.
  uint64_t left_ns() const {
    if (timeout_ns_ == UINT64_MAX) return timeout_ns_;
    const auto passed =
        static_cast<uint64_t>((Clock::now() - begin_) / std::chrono::nanoseconds(1));
    return passed < timeout_ns_ ? timeout_ns_ - passed : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const uint64_t timeout_ns_;
  const Clock::time_point begin_;
};

}  // namespace bp
