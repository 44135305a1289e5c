// What the cases of `perf` are told: how large caches are, and for how long to measure.
#pragma once

#include <cstdint>

namespace bp::conformance {

struct PerfOptions {
  uint64_t cache_bytes =
      256u << 20;            // The last-level cache of the device, or an upper bound of it.
  double min_seconds = 0.2;  // Of timed launches, for each case.
};

}  // namespace bp::conformance
