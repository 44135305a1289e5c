// How a kernel says that it met data it cannot work on, such as an index out of range. Plain data,
// for host and device code.
#pragma once

#include <cstdint>

namespace bp::cuda {

// What kernels write, in host memory that the device reaches.
struct FaultReport {
  uint32_t launch;  // The first that found something; 0: all was well so far.
  uint32_t unused;
  int64_t index;  // One of those that it found.
};

// An argument of such a kernel: where to write, and which launch of its stream this is. The
// launches of a stream run one behind the other.
struct Fault {
  FaultReport* report;
  uint32_t launch;
};

#if defined(__CUDACC__) || defined(BACKPLANE_CUDA_EMULATED)
__device__ inline void report(const Fault& fault, int64_t index) {
  volatile FaultReport* const to = fault.report;
  if (to->launch != 0) return;
  to->index = index;
  __threadfence_system();  // Whoever sees the launch sees an index.
  to->launch = fault.launch;
}
#endif

}  // namespace bp::cuda
