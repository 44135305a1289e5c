// A tile of 32 by 32 elements is read along the dense axis of the source and written along the
// dense axis of the destination, so both sides move whole cache lines. Rows of the tile in shared
// memory have one element more, so that a column lies in different banks.
#include "backends/cuda/kernels/transpose.hpp"

namespace bp::cuda {
namespace {

constexpr uint32_t kTileSide = 32, kSteps = kBlockThreads / kTileSide;
constexpr int64_t kLeastExtent = 8;  // With less, tiles are mostly empty.

struct TransposePlan {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint32_t rows = 0, cols = 0;  // Extents: `from` is dense along rows, `to` along cols.
  int64_t to_row_stride = 0, to_col_stride = 0, from_row_stride = 0, from_col_stride = 0;
  Divider tiles_across, tiles_down;  // Tiles along cols and rows.
  Axes<2> others;                    // The other axes.
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) transpose_kernel(TransposePlan plan) {
  __shared__ T tile[kTileSide][kTileSide + 1];
  const uint32_t above = plan.tiles_across.divide(blockIdx.x);
  const uint32_t across = blockIdx.x - above * plan.tiles_across.divisor();
  const uint32_t other = plan.tiles_down.divide(above);
  const uint32_t down = above - other * plan.tiles_down.divisor();
  int64_t at[2];
  plan.others.locate(other, at);
  const uint32_t lane = threadIdx.x % kTileSide, step = threadIdx.x / kTileSide;
  const uint32_t first_row = down * kTileSide, first_col = across * kTileSide;
  const T* const from = reinterpret_cast<const T*>(plan.from) + at[1];
  const uint32_t row = first_row + lane;
  for (uint32_t i = step; i < kTileSide; i += kSteps) {
    const uint32_t col = first_col + i;
    if (row < plan.rows && col < plan.cols) {
      tile[i][lane] = from[row * plan.from_row_stride + col * plan.from_col_stride];
    }
  }
  __syncthreads();
  T* const to = reinterpret_cast<T*>(plan.to) + at[0];
  const uint32_t col = first_col + lane;
  for (uint32_t i = step; i < kTileSide; i += kSteps) {
    const uint32_t other_row = first_row + i;
    if (other_row < plan.rows && col < plan.cols) {
      to[other_row * plan.to_row_stride + col * plan.to_col_stride] = tile[lane][i];
    }
  }
}

}  // namespace

TileAxes tile_axes(const Loop& part) {
  if (part.rank < 2) return {};
  const int inner = part.rank - 1;
  const auto extent = [&](int axis) { return part.extents[static_cast<size_t>(axis)]; };
  if (part.strides[0][inner] != 1 || part.strides[1][inner] == 0 || part.strides[1][inner] == 1 ||
      extent(inner) < kLeastExtent) {
    return {};
  }
  for (int axis = 0; axis < inner; ++axis) {
    if (part.strides[1][axis] == 1 && extent(axis) >= kLeastExtent) return {inner, axis};
  }
  return {};
}

bp_status submit_transpose(Launch& launch, const Loop& part, TileAxes axes, int64_t size_bytes) {
  TransposePlan plan;
  plan.to = const_cast<std::byte*>(part.data[0]);
  plan.from = part.data[1];
  plan.rows = static_cast<uint32_t>(part.extents[static_cast<size_t>(axes.from)]);
  plan.cols = static_cast<uint32_t>(part.extents[static_cast<size_t>(axes.to)]);
  plan.to_row_stride = part.strides[0][axes.from];
  plan.to_col_stride = part.strides[0][axes.to];
  plan.from_row_stride = part.strides[1][axes.from];
  plan.from_col_stride = part.strides[1][axes.to];
  const unsigned across = blocks_for(plan.cols, kTileSide), down = blocks_for(plan.rows, kTileSide);
  plan.tiles_across = Divider(across);
  plan.tiles_down = Divider(down);
  Loop others = part;
  others.rank = 0;
  for (int axis = 0; axis < part.rank; ++axis) {
    if (axis == axes.to || axis == axes.from) continue;
    const int place = others.rank++;
    others.extents[static_cast<size_t>(place)] = part.extents[static_cast<size_t>(axis)];
    for (int k = 0; k < 2; ++k) others.strides[k][place] = part.strides[k][axis];
  }
  plan.others = others.axes<2>();
  const int64_t count = part.count / plan.rows / plan.cols;
  const auto blocks = static_cast<unsigned>(count * across * down);
  return with_width(size_bytes, [&]<typename T>(T) {
    return run<transpose_kernel<T>>(launch, blocks, kBlockThreads, 0, plan);
  });
}

}  // namespace bp::cuda
