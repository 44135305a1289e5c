// Tiles of a matrix product. A block of 256 threads computes a tile of 64 by 64, from tiles of a
// and b in shared memory that are 16 deep; a thread computes 4 by 4. Sums are f32, or f64 for f64,
// and each runs over the depth in blocks and in one order, so that equal input gives equal bits.
// Elements of narrow dtypes are widened on their way to shared memory, by dtypes known at run time:
// one kernel serves all mixtures.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/mixed.cuh"

namespace bp::cuda {

constexpr int kProductSide = 64, kProductDepth = 16, kPerThread = 4;
constexpr int kProductThreads = kProductSide / kPerThread * (kProductSide / kPerThread);

// A matrix on the device, which begins at element `offset`.
struct TileMatrix {
  std::byte* address = nullptr;
  MixedKind kind = MixedKind::kWide;
  int64_t row_stride = 0, col_stride = 0;
  int64_t offset = 0;

  // Returns the matrix that begins so many elements later.
  __host__ __device__ TileMatrix from(int64_t elements) const {
    return {address, kind, row_stride, col_stride, offset + elements};
  }
  __host__ __device__ TileMatrix transposed() const {
    return {address, kind, col_stride, row_stride, offset};
  }
  __host__ __device__ int64_t at(int64_t row, int64_t col) const {
    return offset + row * row_stride + col * col_stride;
  }
};

// The lines of a tile begin at `first`, and there are `count` lines in all.
struct TileLines {
  int64_t first, count;
};

// The depth of a product, of which `block` is summed at a time.
struct TileDepth {
  int64_t depth, block;
};

// Returns the row, or the column, of a sum of this thread within its tile.
__device__ __forceinline__ int product_row(int i) {
  constexpr int kStep = kProductSide / kPerThread;
  return static_cast<int>(threadIdx.x) / kStep + i * kStep;
}
__device__ __forceinline__ int product_col(int j) {
  constexpr int kStep = kProductSide / kPerThread;
  return static_cast<int>(threadIdx.x) % kStep + j * kStep;
}

// Copies rows of `m`, from a depth on, to shared memory as to[depth][row], with zeros beyond the
// ends. Neighbouring threads read neighbours in memory.
template <typename Sum>
__device__ __forceinline__ void load_product_tile(const TileMatrix& m, TileLines rows,
                                                  int64_t first_depth, int64_t depth,
                                                  Sum (&to)[kProductDepth][kProductSide + 1]) {
  const bool is_deep = m.col_stride == 1;
  BP_UNROLL for (int i = 0; i < kProductSide * kProductDepth / kProductThreads; ++i) {
    const int number = static_cast<int>(threadIdx.x) + i * kProductThreads;
    const int row = is_deep ? number / kProductDepth : number % kProductSide;
    const int deep = is_deep ? number % kProductDepth : number / kProductSide;
    const int64_t at_row = rows.first + row, at_depth = first_depth + deep;
    to[deep][row] = at_row < rows.count && at_depth < depth
                        ? load_as<Sum>(m.address, m.kind, m.at(at_row, at_depth))
                        : Sum{0};
  }
}

// Computes the sums of a tile of a b. All threads of the block call it.
template <typename Sum>
__device__ __forceinline__ void multiply_tile(const TileMatrix& a, const TileMatrix& b,
                                              TileLines rows, TileLines cols, TileDepth deep,
                                              Sum (&totals)[kPerThread][kPerThread]) {
  __shared__ Sum left[kProductDepth][kProductSide + 1], right[kProductDepth][kProductSide + 1];
  const TileMatrix b_lines = b.transposed();
  BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
    BP_UNROLL for (int j = 0; j < kPerThread; ++j) totals[i][j] = 0;
  }
  for (int64_t begin = 0; begin < deep.depth; begin += deep.block) {
    const int64_t end = begin + deep.block < deep.depth ? begin + deep.block : deep.depth;
    Sum sums[kPerThread][kPerThread] = {};
    for (int64_t k = begin; k < end; k += kProductDepth) {
      __syncthreads();
      load_product_tile(a, rows, k, deep.depth, left);
      load_product_tile(b_lines, cols, k, deep.depth, right);
      __syncthreads();
      BP_UNROLL for (int d = 0; d < kProductDepth; ++d) {
        BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
          const Sum value = left[d][product_row(i)];
          BP_UNROLL for (int j = 0; j < kPerThread; ++j) {
            sums[i][j] += value * right[d][product_col(j)];
          }
        }
      }
    }
    BP_UNROLL for (int i = 0; i < kPerThread; ++i) {
      BP_UNROLL for (int j = 0; j < kPerThread; ++j) totals[i][j] += sums[i][j];
    }
  }
}

}  // namespace bp::cuda
