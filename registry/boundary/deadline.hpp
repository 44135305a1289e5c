// Measures how much of a timeout is left, for calls that wait more than once.
#pragma once

#include <chrono>
#include <cstdint>

namespace bp::core {

// Returns the rest of a timeout that began at `begin`, or 0 once it has passed. A timeout of
// UINT64_MAX never passes.
inline uint64_t left_ns(std::chrono::steady_clock::time_point begin, uint64_t timeout_ns) {
  if (timeout_ns == UINT64_MAX) return timeout_ns;
  const auto passed = static_cast<uint64_t>((std::chrono::steady_clock::now() - begin) /
                                            std::chrono::nanoseconds(1));
  return passed < timeout_ns ? timeout_ns - passed : 0;
}

}  // namespace bp::core
