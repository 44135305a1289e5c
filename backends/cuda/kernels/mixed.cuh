// Elements whose dtype is known only at run time, for kernels that take mixtures of dtypes. They
// compute in Sum, which is double for f64 and float for all other floats.
#pragma once

#include "backends/cuda/kernels/device.cuh"
#include "backplane/shell/dtypes.hpp"

namespace bp::cuda {

// The kinds of elements that device code distinguishes at run time. An element is narrow, or a Sum
// (kWide).
enum class MixedKind : uint32_t { kF16, kBF16, kWide };

// Returns the kind of a dtype in a kernel that computes in Sum. Throws StatusError of
// BP_UNSUPPORTED for a dtype for which load_as<Sum>() and store_as<Sum>() have no code.
template <typename Sum>
MixedKind mixed_kind(bp_dtype dtype) {
  constexpr bool kIsWide = sizeof(Sum) == 8;
  if (dtype == (kIsWide ? BP_F64 : BP_F32)) return MixedKind::kWide;
  if (!kIsWide && dtype == BP_F16) return MixedKind::kF16;
  if (!kIsWide && dtype == BP_BF16) return MixedKind::kBF16;
  refuse_dtype(dtype);
}

template <typename Sum>
__host__ __device__ __forceinline__ Sum load_as(const std::byte* address, MixedKind kind,
                                                int64_t at) {
  if constexpr (sizeof(Sum) != 8) {
    if (kind == MixedKind::kF16) return widen(reinterpret_cast<const Float16*>(address)[at]);
    if (kind == MixedKind::kBF16) return widen(reinterpret_cast<const BFloat16*>(address)[at]);
  }
  return reinterpret_cast<const Sum*>(address)[at];
}

template <typename Sum>
__host__ __device__ __forceinline__ void store_as(std::byte* address, MixedKind kind, int64_t at,
                                                  Sum value) {
  if constexpr (sizeof(Sum) != 8) {
    if (kind == MixedKind::kF16) {
      reinterpret_cast<Float16*>(address)[at] = narrow<Float16>(value);
      return;
    }
    if (kind == MixedKind::kBF16) {
      reinterpret_cast<BFloat16*>(address)[at] = narrow<BFloat16>(value);
      return;
    }
  }
  reinterpret_cast<Sum*>(address)[at] = value;
}

}  // namespace bp::cuda
