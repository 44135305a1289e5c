// Tensors (outer, inner, spatial) for kernels that slide windows over spatial axes. There are
// always three spatial axes; if a tensor has fewer, the first ones have extent 1.
#pragma once

#include "backends/cuda/kernels/device.cuh"
#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

constexpr int kGridAxes = 3;

struct Grid {
  std::byte* address = nullptr;
  int64_t outer = 0, inner = 0, outer_stride = 0, inner_stride = 0;
  int64_t extent[kGridAxes] = {1, 1, 1}, stride[kGridAxes] = {};

  __host__ __device__ int64_t size() const { return extent[0] * extent[1] * extent[2]; }
  __host__ __device__ int64_t count() const { return outer * inner * size(); }
};

inline Grid grid_of(const bp_tensor& t) {
  Grid grid;
  grid.address = data<std::byte>(t);
  grid.outer = t.shape[0];
  grid.inner = t.shape[1];
  grid.outer_stride = t.strides[0];
  grid.inner_stride = t.strides[1];
  const uint32_t axes = t.ndim - 2;
  for (uint32_t i = 0; i < axes; ++i) {
    grid.extent[kGridAxes - axes + i] = t.shape[2 + i];
    grid.stride[kGridAxes - axes + i] = t.strides[2 + i];
  }
  return grid;
}

// A position along the spatial axes.
struct GridAt {
  int64_t at[kGridAxes];
};

// Returns the position of an element from its row-major number in its plane or in the whole tensor.
__host__ __device__ __forceinline__ GridAt position(const Grid& grid, int64_t index) {
  GridAt p;
  for (int i = kGridAxes; i-- > 0; index /= grid.extent[i]) p.at[i] = index % grid.extent[i];
  return p;
}

__host__ __device__ __forceinline__ int64_t offset(const Grid& grid, int64_t outer, int64_t inner,
                                                   const GridAt& p) {
  return outer * grid.outer_stride + inner * grid.inner_stride + p.at[0] * grid.stride[0] +
         p.at[1] * grid.stride[1] + p.at[2] * grid.stride[2];
}

// Returns the offset of an element from its number in row-major order.
__host__ __device__ __forceinline__ int64_t offset(const Grid& grid, int64_t index) {
  const int64_t plane = index / grid.size();
  return offset(grid, plane / grid.inner, plane % grid.inner, position(grid, index));
}

// Element `tap` of the window of output o is o * step - low + tap * dilation of the input.
struct GridWindow {
  int64_t kernel[kGridAxes] = {1, 1, 1}, step[kGridAxes] = {1, 1, 1};
  int64_t low[kGridAxes] = {}, dilation[kGridAxes] = {1, 1, 1};
};

// Makes a window. If `dilation` is NULL, it is 1 along every axis.
inline GridWindow window_of(uint32_t axes, const int64_t* kernel, const int64_t* stride,
                            const int64_t* padding, const int64_t* dilation) {
  GridWindow window;
  for (uint32_t i = 0; i < axes; ++i) {
    const uint32_t at = kGridAxes - axes + i;
    window.kernel[at] = kernel[i];
    window.step[at] = stride[i];
    window.low[at] = padding[i];
    if (dilation != nullptr) window.dilation[at] = dilation[i];
  }
  return window;
}

// Launches kKernel(params..., count) with a thread for each of `count` elements, or with several
// elements for each thread.
template <auto kKernel, typename... Params>
bp_status run_elements(Launch& launch, int64_t count, Params... params) {
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  if (count == 0) return BP_OK;
  const auto blocks = static_cast<unsigned>(
      std::min(kMostBlocks, (count + kBlockThreads - 1) / int64_t{kBlockThreads}));
  return run<kKernel>(launch, blocks, kBlockThreads, 0, params..., count);
}

// Calls fn(i) for the elements of this thread.
template <typename Fn>
__device__ __forceinline__ void for_elements(int64_t count, const Fn& fn) {
  const int64_t step = int64_t{gridDim.x} * kBlockThreads;
  for (int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count; i += step) fn(i);
}

}  // namespace bp::cuda
