// Measures how much of a timeout is left, for calls that wait more than once.
#pragma once

#include <chrono>
#include <cstdint>

namespace bp {

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
