// What the cases of `perf` are told: how large caches are, and for how long to measure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bp::conformance {

struct PerfOptions {
  uint64_t cache_bytes =
      256u << 20;            // The last-level cache of the device, or an upper bound of it.
  double min_seconds = 0.2;  // Of timed launches, for each case.

  // For how long a quiet machine is waited for.
  double patience_seconds() const { return std::max(min_seconds, std::min(10 * min_seconds, 2.0)); }
};

}  // namespace bp::conformance
