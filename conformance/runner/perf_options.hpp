// Options of the cases of `perf`: the size of the caches, and how long to measure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bp::conformance {

struct PerfOptions {
  uint64_t cache_bytes =
      256u << 20;            // The size of the device's last-level cache, or an upper bound of it.
  double min_seconds = 0.2;  // The seconds of timed launches for each case.

  // Returns how long a case waits for a quiet machine.
  double patience_seconds() const { return std::max(min_seconds, std::min(10 * min_seconds, 2.0)); }
};

}  // namespace bp::conformance
