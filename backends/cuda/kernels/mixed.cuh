// Elements whose dtype is known at run time alone: for kernels that take mixtures of dtypes, and
// compute in Sum, which is double for f64 and float for all other floats.
#pragma once

#include "backends/cuda/kernels/device.cuh"
#include "backplane/base.h"

namespace bp::cuda {

template <typename Sum>
__host__ __device__ __forceinline__ Sum load_as(const std::byte* address, bp_dtype dtype,
                                                int64_t at) {
  if constexpr (sizeof(Sum) == 8) {
    return reinterpret_cast<const double*>(address)[at];
  } else {
    if (dtype == BP_F16) return widen(reinterpret_cast<const Float16*>(address)[at]);
    if (dtype == BP_BF16) return widen(reinterpret_cast<const BFloat16*>(address)[at]);
    return reinterpret_cast<const float*>(address)[at];
  }
}

template <typename Sum>
__host__ __device__ __forceinline__ void store_as(std::byte* address, bp_dtype dtype, int64_t at,
                                                  Sum value) {
  if constexpr (sizeof(Sum) == 8) {
    reinterpret_cast<double*>(address)[at] = value;
  } else {
    if (dtype == BP_F16) {
      reinterpret_cast<Float16*>(address)[at] = narrow<Float16>(value);
    } else if (dtype == BP_BF16) {
      reinterpret_cast<BFloat16*>(address)[at] = narrow<BFloat16>(value);
    } else {
      reinterpret_cast<float*>(address)[at] = value;
    }
  }
}

}  // namespace bp::cuda
