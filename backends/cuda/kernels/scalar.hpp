// Values that a call contains: inline operands, and arguments of kind scalar|tensor.
#pragma once

#include <cstdint>

#include "backends/cuda/kernel_env.hpp"
#include "backends/cuda/kernels/device.cuh"
#include "backplane/shell/scalar.hpp"
#include "backplane/tensor.h"

namespace bp::cuda {

// One value that is in the call, or in a tensor that is read when the kernel runs.
struct ScalarArgument {
  ScalarArgument() = default;
  // `dtype` is the dtype of the argument, and T below is the type that stores it.
  ScalarArgument(const bp_tensor* tensor, const bp_scalar& scalar, bp_dtype dtype)
      : address(tensor == nullptr ? nullptr : data<const std::byte>(*tensor)),
        bits(tensor == nullptr ? convert_scalar(scalar, dtype) : 0) {}

  template <typename T>
  __host__ __device__ T get() const {
    if (address != nullptr) return *reinterpret_cast<const T*>(address);
    T value;
    memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
  }

  const std::byte* address = nullptr;
  uint64_t bits = 0;
};

}  // namespace bp::cuda
