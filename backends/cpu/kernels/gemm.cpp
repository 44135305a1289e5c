// y = a b in blocks that fit the caches, after copying them into the order in which they are read:
//
//   a block   (96, 256), 192 KiB: the second-level cache of the thread that works on these rows
//   b block   (256, 1024), 2 MiB: shared by all threads, read from the last level
//   tile      kTileRows x two vectors of y, in registers, over the depth of a block
//
// The copies make every stride cost the same, and fill the edges with zeros, so that tiles are
// full.
#include "backends/cpu/kernels/gemm.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/kernels/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef BACKPLANE_KERNELS_GEMM_BLOCKS
#define BACKPLANE_KERNELS_GEMM_BLOCKS
namespace bp::kernels {

constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockDepth = 256;
constexpr int64_t kBlockCols = 1024;

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The rows of each thread's share of a block of a, and the columns of a block of b, as buffers hold
// them: a whole number of tiles, whatever the target's tile is.
constexpr int64_t kTileRowsLimit = 24;
constexpr int64_t kTileColsLimit = 32;

}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<double, 8>;
using Vector = hn::Vec<Tag>;

// The accumulators, two vectors of b and one of a fill the registers.
constexpr int64_t kTileRows = HWY_TARGET <= HWY_AVX3 ? 12 : 4;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
constexpr int64_t kTileCols = 2 * kLanes;

// Copies rows [begin, begin + count) and all columns of `from` to panels of `panel` rows, in which
// the elements of one column are neighbours. The last panel is filled up with zeros.
void pack_panels(const Matrix<const double>& from, int64_t panel, double* to) {
  for (int64_t begin = 0; begin < from.rows; begin += panel) {
    const int64_t count = std::min(panel, from.rows - begin);
    const double* source = from.data + begin * from.row_stride;
    for (int64_t c = 0; c < from.cols; ++c, source += from.col_stride, to += panel) {
      for (int64_t r = 0; r < count; ++r) to[r] = source[r * from.row_stride];
      for (int64_t r = count; r < panel; ++r) to[r] = 0.0;
    }
  }
}

// tile (kTileRows, kTileCols) = a panel (depth, kTileRows) by b panel (depth, kTileCols).
void multiply_tile(const double* HWY_RESTRICT a, const double* HWY_RESTRICT b, int64_t depth,
                   double* HWY_RESTRICT tile) {
  const Tag d;
  Vector sums[kTileRows][2];
  for (auto& row : sums) row[0] = row[1] = hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileCols) {
    const Vector b0 = hn::Load(d, b);
    const Vector b1 = hn::Load(d, b + kLanes);
    for (int64_t r = 0; r < kTileRows; ++r) {
      const Vector value = hn::Set(d, a[r]);
      sums[r][0] = hn::MulAdd(value, b0, sums[r][0]);
      sums[r][1] = hn::MulAdd(value, b1, sums[r][1]);
    }
  }
  for (int64_t r = 0; r < kTileRows; ++r) {
    hn::Store(sums[r][0], d, tile + r * kTileCols);
    hn::Store(sums[r][1], d, tile + r * kTileCols + kLanes);
  }
}

// y, at most a tile, gets the upper left part of the tile.
void store_tile(const double* tile, const Matrix<double>& y, bool accumulate) {
  for (int64_t r = 0; r < y.rows; ++r, tile += kTileCols) {
    double* const row = y.data + r * y.row_stride;
    for (int64_t c = 0; c < y.cols; ++c) {
      double& element = row[c * y.col_stride];
      element = accumulate ? element + tile[c] : tile[c];
    }
  }
}

template <typename T>
Matrix<T> part(const Matrix<T>& m, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return {m.data + row * m.row_stride + col * m.col_stride, std::min(rows, m.rows - row),
          std::min(cols, m.cols - col), m.row_stride, m.col_stride};
}

// y = a block by packed b block.
void multiply_block(const Matrix<const double>& a, const double* b_panels, const Matrix<double>& y,
                    bool accumulate, double* a_panels) {
  alignas(64) double tile[kTileRows * kTileCols];
  pack_panels(a, kTileRows, a_panels);
  for (int64_t c = 0; c < y.cols; c += kTileCols) {
    for (int64_t r = 0; r < y.rows; r += kTileRows) {
      multiply_tile(a_panels + r * a.cols, b_panels + c * a.cols, a.cols, tile);
      store_tile(tile, part(y, r, kTileRows, c, kTileCols), accumulate);
    }
  }
}

// Packs the parts of b, and multiplies the blocks of rows, with all threads. Where there are fewer
// blocks of rows than threads, each block's columns are divided too.
void multiply(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& y,
              bool accumulate, double* workspace, int thread_count) {
  const int64_t a_size = std::min(kBlockDepth, a.cols) * (kBlockRows + kTileRowsLimit);
  double* const b_panels = workspace + thread_count * a_size;
  const int64_t row_blocks = (y.rows + kBlockRows - 1) / kBlockRows;
  const int64_t divisions = (thread_count + row_blocks - 1) / row_blocks;
  const int64_t tasks = row_blocks * divisions;
  for (int64_t col = 0; col < y.cols; col += kBlockCols) {
    const int64_t cols = std::min(kBlockCols, y.cols - col);
    const int64_t share = round_up((cols + divisions - 1) / divisions, kTileCols);
    for (int64_t k = 0; k < a.cols; k += kBlockDepth) {
      const Matrix<const double> b_block = part(b, k, kBlockDepth, col, kBlockCols).transposed();
      const int64_t depth = b_block.cols;
#pragma omp parallel num_threads(thread_count)
      {
#pragma omp for schedule(static)
        for (int64_t c = 0; c < cols; c += kTileCols) {
          pack_panels(part(b_block, c, kTileCols, 0, depth), kTileCols, b_panels + c * depth);
        }
#pragma omp for schedule(static)
        for (int64_t thread = 0; thread < thread_count; ++thread) {
          for (int64_t task = thread; task < tasks; task += thread_count) {
            const int64_t row = task / divisions * kBlockRows;
            const int64_t begin = task % divisions * share;
            if (begin >= cols) continue;
            multiply_block(part(a, row, kBlockRows, k, depth), b_panels + begin * depth,
                           part(y, row, kBlockRows, col + begin, std::min(share, cols - begin)),
                           accumulate || k != 0, workspace + thread * a_size);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(multiply);

// Below this many products a team of threads costs more than it saves.
constexpr int64_t kParallelProducts = 1 << 16;

}  // namespace

uint64_t gemm_workspace_size_bytes(int64_t cols, int64_t depth, int thread_count) {
  const int64_t block_cols = round_up(std::min(kBlockCols, cols), kTileColsLimit);
  const int64_t elements =
      std::min(kBlockDepth, depth) * (thread_count * (kBlockRows + kTileRowsLimit) + block_cols);
  return static_cast<uint64_t>(elements) * sizeof(double);
}

void gemm(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& y,
          bool accumulate, std::byte* workspace, int thread_count) {
  if (a.cols == 0 && !accumulate) {
    for (int64_t r = 0; r < y.rows; ++r) {
      for (int64_t c = 0; c < y.cols; ++c) y.data[r * y.row_stride + c * y.col_stride] = 0.0;
    }
  }
  if (y.rows == 0 || y.cols == 0 || a.cols == 0) return;
  const bool is_small = y.rows * y.cols <= kParallelProducts / a.cols;
  HWY_DYNAMIC_DISPATCH(multiply)
  (a, b, y, accumulate, reinterpret_cast<double*>(workspace), is_small ? 1 : thread_count);
}

}  // namespace bp::kernels
#endif
