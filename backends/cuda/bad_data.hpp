// How a kernel says that it met data it cannot work on, such as an index out of range. Plain data,
// for host and device code.
#pragma once

#include <cstdint>

namespace bp::cuda {

// What kernels write, in host memory that the device reaches.
struct BadDataReport {
  uint32_t launch;  // The first that found something; 0: all was well so far.
  uint32_t unused;
  int64_t index;  // One of those that it found.
};

// An argument of such a kernel: where to write, and which launch of its stream this is. The
// launches of a stream run one behind the other.
struct Reporter {
  BadDataReport* report;
  uint32_t launch;
};

}  // namespace bp::cuda
