// Finds the elements of strided tensors. The extents of axes are stored so that a kernel divides by
// them quickly.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

// The most axes of a tensor, BP_MAX_RANK.
constexpr int kMaxRank = 8;

// The most elements of one launch, which 32 bits count. The host cuts a loop with more elements.
constexpr int64_t kMaxLaunchElements = int64_t{1} << 30;

// Divides numbers below 2^31 by a number that is the same for many of them, with a multiplication
// (Granlund, Montgomery 1994).
class Divider {
 public:
  Divider() = default;
  __host__ __device__ explicit Divider(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << shift_) < divisor) ++shift_;
    const uint64_t rest = (uint64_t{1} << shift_) - divisor;
    multiplier_ = static_cast<uint32_t>((rest << 32) / divisor + 1);
  }

  __host__ __device__ uint32_t divisor() const { return divisor_; }
  __host__ __device__ uint32_t divide(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    return (__umulhi(n, multiplier_) + n) >> shift_;
#else
    return (static_cast<uint32_t>(uint64_t{n} * multiplier_ >> 32) + n) >> shift_;
#endif
  }

 private:
  uint32_t divisor_ = 1, multiplier_ = 1, shift_ = 0;
};

// The axes that kOperands tensors share, the innermost first, with the strides of each in elements.
template <int kOperands>
struct Axes {
  int rank = 0;
  Divider extents[kMaxRank];
  int64_t strides[kOperands][kMaxRank] = {};

  // Gives the offset of element number `index` in each tensor.
  __host__ __device__ __forceinline__ void locate(uint32_t index, int64_t (&at)[kOperands]) const {
    BP_UNROLL
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    BP_UNROLL
    for (int axis = 0; axis < kMaxRank; ++axis) {
      if (axis == rank) break;
      uint32_t place = index;
      if (axis + 1 < rank) {
        const uint32_t next = extents[axis].divide(index);
        place = index - next * extents[axis].divisor();
        index = next;
      }
      BP_UNROLL
      for (int k = 0; k < kOperands; ++k) at[k] += place * strides[k][axis];
    }
  }

  // Returns the offset of element number `index` in one tensor.
  __host__ __device__ __forceinline__ int64_t offset(uint32_t index, int operand = 0) const {
    if (rank == 1) return index * strides[operand][0];
    int64_t at = 0;
    BP_UNROLL
    for (int axis = 0; axis < kMaxRank; ++axis) {
      if (axis == rank) break;
      uint32_t place = index;
      if (axis + 1 < rank) {
        const uint32_t next = extents[axis].divide(index);
        place = index - next * extents[axis].divisor();
        index = next;
      }
      at += place * strides[operand][axis];
    }
    return at;
  }
};

}  // namespace bp::cuda
