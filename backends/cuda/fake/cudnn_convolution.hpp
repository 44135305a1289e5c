// What the cuDNN for tests computes: a convolution, or a gradient of one, as its graph says it.
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

// Whether the extents are those of one convolution.
bool fits(const Convolution& c);

// Where the tensors lie.
struct At {
  std::byte *x = nullptr, *weight = nullptr, *y = nullptr;
};

// Each sum in double. `is_turned` takes the filter's taps in the opposite order.
void compute(const Convolution& c, const At& at, bool is_turned);

}  // namespace bp::cuda::fake
