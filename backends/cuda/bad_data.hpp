// How a kernel reports data that it cannot work on, such as an index out of range. These structs
// are plain data, for host and device code.
#pragma once

#include <cstdint>

namespace bp::cuda {

// The report that kernels write. It is in host memory that the device can write.
struct BadDataReport {
  uint32_t launch;  // The number of the first launch that found bad data, or 0 if none did.
  uint32_t unused;
  int64_t index;   // One of the bad indices that it found.
  uint64_t place;  // The address of this index.
};

// An argument of such a kernel: the place of the report, and the number of the launch on its
// stream. The launches of a stream run one after the other.
struct Reporter {
  BadDataReport* report;
  uint32_t launch;
};

}  // namespace bp::cuda
