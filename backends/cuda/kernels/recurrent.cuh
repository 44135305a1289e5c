// What the device code of recurrent sequences shares (recurrent.hpp).
#pragma once

#include "backends/cuda/kernels/activation.cuh"
#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/recurrent.hpp"

namespace bp::cuda {

// A tensor (steps, rows, elements), (rows, elements) or (elements).
struct SequenceView {
  std::byte* data = nullptr;  // NULL: the call lacks the tensor.
  int64_t strides[3] = {};    // Those of missing axes are 0.

  template <typename T>
  __device__ __forceinline__ T* at(int64_t step, int64_t row, int64_t element) const {
    return reinterpret_cast<T*>(data) + step * strides[0] + row * strides[1] + element * strides[2];
  }
};

// Returns the view of a tensor, which may be NULL.
SequenceView view_of(const bp_tensor* tensor);

// How many steps each row has. NULL: each row has all steps.
struct StepCounts {
  const int64_t* counts = nullptr;

  __device__ __forceinline__ bool has(int64_t step, uint32_t row) const {
    return counts == nullptr || step < counts[row];
  }
};

// Returns a divider by an extent, which may be 0 if nothing is divided.
inline Divider divider_of(int64_t extent) {
  return Divider(static_cast<uint32_t>(std::max<int64_t>(1, extent)));
}

}  // namespace bp::cuda
