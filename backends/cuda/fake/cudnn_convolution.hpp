// The convolutions and gradients that the fake cuDNN computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

constexpr size_t kMostAxes = 3;
using Extents = std::array<int64_t, kMostAxes + 2>;

struct Tensor {
  int64_t name, alignment;
  cudaDataType_t type;
  Extents shape{}, strides{};
  size_t ndim;
};

struct Convolution {
  cudnnBackendDescriptorType_t type;
  Tensor x, weight, y;
  Extents stride{}, dilation{}, low{}, high{};
  double alpha = 0, beta = 0;
  bool rounds = false;

  size_t axes() const { return x.ndim - 2; }
  int64_t groups() const { return x.shape[1] / weight.shape[1]; }
};

// Returns whether the extents fit each other.
bool fits(const Convolution& c);

// The addresses of the tensors.
struct At {
  std::byte *x = nullptr, *weight = nullptr, *y = nullptr;
};

// Computes the result, with each sum in double. If `is_turned` is true, the taps of the filter are
// taken in the opposite order.
void compute(const Convolution& c, const At& at, bool is_turned);

}  // namespace bp::cuda::fake
