// How a kernel says that it met data it cannot work on, such as an index out of range. Plain data,
// for host and device code.
#pragma once

#include <cstdint>

namespace bp::cuda {

// An argument of such a kernel: where to write, and which launch of its stream this is. All threads
// of one launch write the same, and the launches of a stream run one behind the other.
struct Fault {
  uint32_t* word;  // In host memory that the device reaches; 0: all was well so far.
  uint32_t sequence;
};

#if defined(__CUDACC__) || defined(BACKPLANE_CUDA_EMULATED)
__device__ inline void report(const Fault& fault) {
  volatile uint32_t* const word = fault.word;
  if (*word == 0) *word = fault.sequence;
}
#endif

}  // namespace bp::cuda
