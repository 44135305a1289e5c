// Computes y = a b in blocks that fit the caches. The blocks are first copied, in the dtype of the
// sums, into the order in which they are read:
//
//   a block   (192, 256) f32 or (96, 512) f64, 192 or 384 KiB: the second-level cache of the thread
//             that works on these rows
//   b block   (256, 1024) f32 or (512, 1024) f64, 1 or 4 MiB: shared by all threads, read from the
//             last level
//   tile      kTileRows x two vectors of y, in registers, over the depth of a block
//
// Because of the copies every dtype and stride takes nearly the same time. They fill the edges with
// zeros, so that tiles are full. No operand is copied as a whole. If the depth has several blocks,
// the sums of a band of rows and of the columns of one b block are kept in a buffer beside y. y may
// have a narrower dtype, and its rows often lie a power of two apart, so that they compete for the
// same cache sets. Whole tiles are added to the buffer and stored from registers. With AVX-512 and
// two threads, f64 512^3 reaches 145 GF/s and bf16 1024^3 reaches 288; the loop of a tile alone
// reaches 176 and 350.
//
// If the depth is short, most of the time goes into writing y: the tiles of a row of y are then
// computed one after the other, and a large y is written past the caches.
#include "backends/host_kernels/gemm.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "backends/host_kernels/gemv.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/strided.hpp"
#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/gemm.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/gemm_tile-inl.hpp"
#include "backends/host_kernels/pack-inl.hpp"

#ifndef BACKPLANE_KERNELS_GEMM_BLOCKS
#define BACKPLANE_KERNELS_GEMM_BLOCKS
namespace bp::kernels {

template <typename Sum>
constexpr int64_t kBlockRows = 768 / sizeof(Sum);
template <typename Sum>
constexpr int64_t kBlockDepth = sizeof(Sum) == 8 ? 512 : 256;
constexpr int64_t kBlockCols = 1024;
constexpr int64_t kBandBlocks = 6;  // At least one for each thread.
constexpr int64_t kSumsGap = 16;    // It keeps rows of sums in different cache sets.

// Returns the depth of a block. All of `depth` is divided into as few blocks as possible, of equal
// size.
template <typename Sum>
int64_t block_depth(int64_t depth) {
  return ceil_div(depth, std::max<int64_t>(1, ceil_div(depth, kBlockDepth<Sum>)));
}

// The workspace of run_gemm(), and the division of its rows.
struct GemmLayout {
  int64_t a_elements;  // The elements of one thread.
  int64_t b_elements;
  int64_t band_rows;  // All rows of y if no sums are kept.
  bool keeps_sums;
  int64_t sums_stride;
  uint64_t b_offset, sums_offset, size_bytes;
};

template <typename Sum>
GemmLayout gemm_layout(const Gemm& g, int thread_count) {
  GemmLayout layout{};
  const int64_t depth = block_depth<Sum>(g.a.cols), cols = std::min(kBlockCols, g.y.cols);
  layout.a_elements = depth * (std::min(kBlockRows<Sum>, g.y.rows) + kTileRowsLimit);
  layout.b_elements = depth * round_up(cols, kTileColsLimit);
  layout.keeps_sums = g.a.cols > depth;
  layout.band_rows = g.y.rows;
  if (layout.keeps_sums) {
    const int64_t blocks = round_up(kBandBlocks, thread_count);
    layout.band_rows = std::min(g.y.rows, blocks * kBlockRows<Sum>);
  }
  const auto reserve = [&](int64_t elements) {
    return reserve_bytes(static_cast<uint64_t>(elements) * sizeof(Sum), layout.size_bytes);
  };
  reserve(thread_count * layout.a_elements);
  layout.b_offset = reserve(layout.b_elements);
  layout.sums_stride = cols + kSumsGap;
  layout.sums_offset = reserve(layout.keeps_sums ? layout.band_rows * layout.sums_stride : 0);
  return layout;
}

}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

// Computes the result of a block of a by packed b.
template <typename Sum>
void multiply_block(const Matrix& a, const Sum* b_panels, const Result& result, Sum* a_panels) {
  pack_panels<kTileRows>(a, a_panels);
  const auto multiply = [&](int64_t r, int64_t c) {
    const Result part = result.part(r, kTileRows, c, kTileCols<Sum>);
    if (!result.is_streamed) prefetch_tile(part);
    multiply_part(a_panels + r * a.cols, b_panels + c * a.cols, a.cols, part);
  };
  if (is_shallow(a.cols)) {
    for (int64_t r = 0; r < result.y.rows; r += kTileRows) {
      for (int64_t c = 0; c < result.y.cols; c += kTileCols<Sum>) multiply(r, c);
    }
    return;
  }
  for (int64_t c = 0; c < result.y.cols; c += kTileCols<Sum>) {
    for (int64_t r = 0; r < result.y.rows; r += kTileRows) multiply(r, c);
  }
}

// The tasks of the threads. All threads get equally many blocks of rows, whose sizes differ by at
// most a tile. If there are fewer blocks than threads, the columns are divided too.
struct Tasks {
  Tasks(const Matrix& y, int64_t block_rows, int64_t tile_cols, int thread_count)
      : row_tiles(ceil_div(y.rows, kTileRows)), row_blocks(ceil_div(y.rows, block_rows)) {
    if (row_blocks > 1) row_blocks = std::min(row_tiles, round_up(row_blocks, thread_count));
    col_parts = ceil_div(thread_count, row_blocks);
    cols = round_up(ceil_div(y.cols, col_parts), tile_cols);
  }
  int64_t count() const { return row_blocks * col_parts; }
  int64_t first_row(int64_t block) const { return row_tiles * block / row_blocks * kTileRows; }
  int64_t row_tiles, row_blocks;
  int64_t col_parts, cols;
};

// Computes a (rows, depth of a block) by b (depth of a block, columns of a block). All threads pack
// b, and then multiply the blocks of rows.
template <typename Sum>
void multiply_panels(const Matrix& a, const Matrix& b, const Result& result,
                     const GemmLayout& layout, std::byte* workspace, int thread_count) {
  constexpr int64_t kPackCols = 4 * kTileCols<Sum>;
  Sum* const a_panels = reinterpret_cast<Sum*>(workspace);
  Sum* const b_panels = reinterpret_cast<Sum*>(workspace + layout.b_offset);
  const Matrix lines = b.transposed();
  const Tasks tasks(result.y, kBlockRows<Sum>, kTileCols<Sum>, thread_count);
#pragma omp parallel num_threads(thread_count) if (thread_count > 1)
  {
#pragma omp for schedule(static)
    for (int64_t c = 0; c < lines.rows; c += kPackCols) {
      pack_panels<kTileCols<Sum>>(lines.part(c, kPackCols, 0, lines.cols),
                                  b_panels + c * lines.cols);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks.count(); ++task) {
      const int64_t block = task / tasks.col_parts, col = task % tasks.col_parts * tasks.cols;
      const int64_t row = tasks.first_row(block), rows = tasks.first_row(block + 1) - row;
      if (col >= result.y.cols) continue;
      multiply_block(a.part(row, rows, 0, a.cols), b_panels + col * a.cols,
                     result.part(row, rows, col, tasks.cols),
                     a_panels + thread_number() * layout.a_elements);
    }
    if (result.is_streamed) hwy::FlushStream();
  }
}

// Returns whether tiles of a part of y are written past the caches: the depth is short, and y is
// large and its rows begin at lines of the caches.
template <typename Sum>
bool streams_tiles(const Matrix& y, int64_t depth, int64_t y_elements) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Sum)), kLine = int64_t{64} / kSize;
  return is_shallow(depth) && y_elements * kSize >= kStreamBytes && y.dtype == kSumDtype<Sum> &&
         y.row_stride % kLine == 0 && reinterpret_cast<uintptr_t>(y.data) % 64 == 0;
}

// Below this many products of a depth block, a team of threads costs more than it saves.
constexpr int64_t kParallelProducts = 1 << 15;

// Computes one band of rows and one block of columns, one depth block after the other.
// All of y has `y_elements`.
template <typename Sum>
void multiply_band(const Gemm& g, int64_t y_elements, const GemmLayout& layout,
                   std::byte* workspace, int thread_count) {
  Matrix sums;
  if (layout.keeps_sums) {
    sums = {
        workspace + layout.sums_offset, kSumDtype<Sum>, g.y.rows, g.y.cols, layout.sums_stride, 1};
  }
  const int64_t depth = block_depth<Sum>(g.a.cols);
  const bool is_small = g.y.rows * g.y.cols <= kParallelProducts / std::max<int64_t>(1, depth);
  if (is_small) thread_count = 1;
  int64_t k = 0;
  do {  // It runs once for a depth of 0.
    Result result = {sums, {}, sums, {}, BP_LINEAR_ACTIVATION_NONE};
    if (k == 0) result.sums = g.accumulates ? g.y : Matrix{};
    if (k + depth >= g.a.cols) {
      result = {result.sums,     g.bias,       g.y,
                g.preactivation, g.activation, streams_tiles<Sum>(g.y, g.a.cols, y_elements)};
    }
    multiply_panels<Sum>(g.a.part(0, g.a.rows, k, depth), g.b.part(k, depth, 0, g.b.cols), result,
                         layout, workspace, thread_count);
    k += depth;
  } while (k < g.a.cols);
}

template <typename Sum>
void multiply(const Gemm& g, std::byte* workspace, int thread_count) {
  const GemmLayout layout = gemm_layout<Sum>(g, thread_count);
  for (int64_t row = 0; row < g.y.rows; row += layout.band_rows) {
    for (int64_t col = 0; col < g.y.cols; col += kBlockCols) {
      Gemm band = g;
      band.a = g.a.part(row, layout.band_rows, 0, g.a.cols);
      band.b = g.b.part(0, g.b.rows, col, kBlockCols);
      band.y = g.y.part(row, layout.band_rows, col, kBlockCols);
      band.bias = g.bias.part(row, layout.band_rows, col, kBlockCols);
      band.preactivation = g.preactivation.part(row, layout.band_rows, col, kBlockCols);
      multiply_band<Sum>(band, g.y.rows * g.y.cols, layout, workspace, thread_count);
    }
  }
}

void multiply_f32(const Gemm& g, std::byte* workspace, int thread_count) {
  multiply<float>(g, workspace, thread_count);
}

void multiply_f64(const Gemm& g, std::byte* workspace, int thread_count) {
  multiply<double>(g, workspace, thread_count);
}

// Applies the activation to row `row` of y, which holds the sums.
void activate_row(const Matrix& y, const Matrix& preactivation, uint32_t activation, int64_t row) {
  constexpr int64_t kPartElements = 256;
  HWY_ALIGN float part[kPartElements];
  for (int64_t col = 0; col < y.cols; col += kPartElements) {
    const int64_t count = std::min(kPartElements, y.cols - col);
    load_line(reinterpret_cast<const float*>(y.at(row, col)), y.col_stride, count, part);
    if (preactivation.data != nullptr) {
      store_row(part, preactivation.part(row, 1, col, count), 0);
    }
    activate_line(activation, count, part);
    store_row(part, y.part(row, 1, col, count), 0);
  }
}

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(activate_row);

// Below this many products a team of threads costs more than it saves.
constexpr int64_t kParallelProducts = 1 << 16;

// Returns the product, transposed if y then has dense rows, because tiles are stored by rows.
Gemm with_dense_rows(const Gemm& g) {
  const bool has_dense_cols = g.y.row_stride == 1 && g.y.col_stride != 1 && g.y.rows > 1;
  return has_dense_cols ? g.transposed() : g;
}

}  // namespace

uint64_t gemm_workspace_size_bytes(const Gemm& gemm, int thread_count) {
  if (is_gemv(gemm)) return gemv_workspace_size_bytes(gemm);
  const Gemm g = with_dense_rows(gemm);
  return g.y.dtype == BP_F64 ? gemm_layout<double>(g, thread_count).size_bytes
                             : gemm_layout<float>(g, thread_count).size_bytes;
}

void run_gemm(const Gemm& gemm, std::byte* workspace, int thread_count) {
  if (is_gemv(gemm)) return run_gemv(gemm, workspace, thread_count);
  const Gemm g = with_dense_rows(gemm);
  const bool is_small = g.y.rows * g.y.cols <= kParallelProducts / std::max<int64_t>(1, g.a.cols);
  const int threads = is_small ? 1 : thread_count;
  if (g.y.dtype == BP_F64) return HWY_DYNAMIC_DISPATCH(multiply_f64)(g, workspace, threads);
  HWY_DYNAMIC_DISPATCH(multiply_f32)(g, workspace, threads);
}

void run_activation(const Matrix& y, const Matrix& preactivation, uint32_t activation,
                    int thread_count) {
  constexpr int64_t kGrainElements = 32768;
  const auto activate = HWY_DYNAMIC_DISPATCH(activate_row);
  parallel_for(thread_count, y.rows, ceil_div(kGrainElements, y.cols),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   activate(y, preactivation, activation, row);
                 }
               });
}

}  // namespace bp::kernels
#endif
