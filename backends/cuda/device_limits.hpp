// The limits of a device to which kernels fit their launches.
#pragma once

namespace bp::cuda {

struct DeviceLimits {
  int major = 0, minor = 0;  // The compute capability.
  int multiprocessor_count = 0;
  int max_threads_per_block = 0;
  int max_threads_per_multiprocessor = 0;
  int shared_bytes_per_block = 0;      // The limit without cudaFuncSetAttribute().
  int max_shared_bytes_per_block = 0;  // The limit with it.
  int shared_bytes_per_multiprocessor = 0;
  int l2_cache_bytes = 0;
};

}  // namespace bp::cuda
