#include "backends/host_kernels/loop.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "backends/host_kernels/loop_blocks.hpp"
#include "backends/host_kernels/loop_short_rows.hpp"
#include "backends/host_kernels/transpose.hpp"
#include "hwy/cache_control.h"

namespace bp::kernels {
namespace {

// The size of the tile of a row function. A transposed operand of f64 takes 16 KiB.
constexpr int64_t kTileRows = 32, kTileCols = 64;

struct Axis {
  int64_t extent;
  std::array<int64_t, kMaxOperands> strides;  // In bytes.
};

// Returns whether `outer` continues where `inner` ends, in every operand.
bool can_merge(const Axis& outer, const Axis& inner) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    if (outer.strides[k] != inner.strides[k] * inner.extent) return false;
  }
  return true;
}

// Returns whether a is the outer axis. The outer axis has the larger stride in the result, or else
// in the first operand in which the strides differ.
bool is_outer(const Axis& a, const Axis& b) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    const int64_t left = std::abs(a.strides[k]), right = std::abs(b.strides[k]);
    if (left != right) return left > right;
  }
  return false;
}

// The axes that matter, sorted by the stride of the result, the outermost first.
int sort_axes(uint32_t ndim, const int64_t* shape, std::span<const LoopOperand> operands,
              std::array<Axis, BP_MAX_RANK>& axes) {
  int rank = 0;
  for (uint32_t i = 0; i < ndim; ++i) {
    if (shape[i] == 1) continue;
    Axis& axis = axes[static_cast<size_t>(rank++)];
    axis = {shape[i], {}};
    size_t k = 0;
    for (const LoopOperand& o : operands) {
      axis.strides[k++] = o.data == nullptr ? 0 : o.strides[i] * o.size_bytes;
    }
  }
  // An insertion sort keeps the order of equals and is fastest for the usual few axes.
  for (int i = 1; i < rank; ++i) {
    for (int j = i; j > 0; --j) {
      Axis &outer = axes[static_cast<size_t>(j - 1)], &inner = axes[static_cast<size_t>(j)];
      if (!is_outer(inner, outer)) break;
      std::swap(outer, inner);
    }
  }
  return rank;
}

// Puts the axes into the loop, and merges neighbours if every operand allows it.
void merge_axes(Loop& loop, const std::array<Axis, BP_MAX_RANK>& axes, int rank) {
  for (int i = 0; i < rank; ++i) {
    const Axis& axis = axes[static_cast<size_t>(i)];
    const bool is_merged = i > 0 && can_merge(axes[static_cast<size_t>(i - 1)], axis);
    const int axis_number = is_merged ? loop.rank - 1 : loop.rank++;
    const auto place = static_cast<size_t>(axis_number);
    loop.extents[place] = is_merged ? loop.extents[place] * axis.extent : axis.extent;
    for (size_t k = 0; k < kMaxOperands; ++k) loop.strides[k][place] = axis.strides[k];
  }
}

// If an operand is denser along another axis than along the inner one, makes that axis the
// neighbour of the inner one.
void choose_tiles(Loop& loop) {
  const int inner = loop.rank - 1;
  int best = -1;
  int64_t best_stride = 0;
  for (int k = 0; k < loop.operand_count; ++k) {
    for (int axis = 0; axis < inner; ++axis) {
      const int64_t stride = std::abs(loop.strides[k][axis]);
      const bool is_denser = stride > 0 && stride < std::abs(loop.strides[k][inner]);
      if (!is_denser || (best >= 0 && stride >= best_stride)) continue;
      best = axis;
      best_stride = stride;
    }
  }
  if (best < 0) return;
  loop.is_tiled = true;
  for (int axis = best; axis < inner - 1; ++axis) {
    std::swap(loop.extents[static_cast<size_t>(axis)], loop.extents[static_cast<size_t>(axis + 1)]);
    for (int k = 0; k < kMaxOperands; ++k) {
      std::swap(loop.strides[k][axis], loop.strides[k][axis + 1]);
    }
  }
}

}  // namespace

Loop make_loop(uint32_t ndim, const int64_t* shape, std::span<const LoopOperand> operands,
               uint64_t scalar) {
  Loop loop;
  loop.operand_count = static_cast<int>(operands.size());
  loop.scalar = scalar;
  for (uint32_t i = 0; i < ndim; ++i) loop.count *= shape[i];
  size_t k = 0;
  bool is_row = true;
  for (const LoopOperand& o : operands) {
    loop.data[k] = o.data;
    loop.size_bytes[k++] = o.size_bytes;
    is_row = is_row && (o.data == nullptr || is_contiguous(ndim, shape, o.strides));
  }
  if (is_row) {
    loop.rank = 1;
    loop.extents[0] = loop.count;
    for (k = 0; k < operands.size(); ++k) {
      loop.strides[k][0] = loop.data[k] == nullptr ? 0 : loop.size_bytes[k];
    }
    return loop;
  }
  std::array<Axis, BP_MAX_RANK> axes;
  merge_axes(loop, axes, sort_axes(ndim, shape, operands, axes));
  if (loop.rank >= 2) choose_tiles(loop);
  return loop;
}

Loop make_loop(std::initializer_list<const bp_tensor*> tensors, uint64_t scalar) {
  const bp_tensor& shaped = **tensors.begin();
  std::array<LoopOperand, kMaxOperands> operands{};
  size_t k = 0;
  for (const bp_tensor* t : tensors) {
    if (t != nullptr) {
      operands[k] = {data<std::byte>(*t), t->strides, dtype_size_bytes(t->dtype)};
    }
    ++k;
  }
  return make_loop(shaped.ndim, shaped.shape, std::span(operands).first(k), scalar);
}

namespace {

using Addresses = std::array<std::byte*, kMaxOperands>;

// Returns the addresses where the operands begin. The operand without an address gets that of
// `scalar`.
Addresses first_addresses(const Loop& loop, uint64_t& scalar) {
  Addresses at{};
  for (size_t k = 0; k < static_cast<size_t>(loop.operand_count); ++k) {
    at[k] = loop.data[k] == nullptr ? reinterpret_cast<std::byte*>(&scalar) : loop.data[k];
  }
  return at;
}

// Moves `at` by `steps` along `axis`.
void advance(const Loop& loop, Addresses& at, int axis, int64_t steps) {
  for (int k = 0; k < loop.operand_count; ++k) {
    at[static_cast<size_t>(k)] += steps * loop.strides[k][axis];
  }
}

// Moves `at` from the origin to number `index` of the outermost `axis_count` axes.
void seek(const Loop& loop, Addresses& at, int axis_count, int64_t index) {
  for (int axis = axis_count; axis-- > 0;) {
    const int64_t extent = loop.extents[static_cast<size_t>(axis)];
    advance(loop, at, axis, index % extent);
    index /= extent;
  }
}

std::array<int64_t, kMaxOperands> row_strides(const Loop& loop) {
  std::array<int64_t, kMaxOperands> strides{};
  for (int k = 0; k < loop.operand_count && loop.rank > 0; ++k) {
    strides[static_cast<size_t>(k)] = loop.strides[k][loop.rank - 1];
  }
  return strides;
}

// Moves `at` to the next index of the outermost `axis_count` axes.
void step(const Loop& loop, Addresses& at, int axis_count,
          std::array<int64_t, BP_MAX_RANK>& index) {
  for (int axis = axis_count; axis-- > 0;) {
    const auto a = static_cast<size_t>(axis);
    advance(loop, at, axis, 1);
    if (++index[a] < loop.extents[a]) return;
    advance(loop, at, axis, -loop.extents[a]);
    index[a] = 0;
  }
}

// Runs the elements [begin, end) of the loop, in its order.
void run_part(const Loop& loop, RowFunction* row, const void* context, int64_t begin, int64_t end) {
  uint64_t scalar = loop.scalar;
  Addresses at = first_addresses(loop, scalar);
  const auto strides = row_strides(loop);
  const int inner = loop.rank - 1;
  if (inner < 0) return row(at.data(), strides.data(), 1, context);
  if (inner == 0) {
    advance(loop, at, inner, begin);
    return row(at.data(), strides.data(), end - begin, context);
  }
  const int64_t length = loop.extents[static_cast<size_t>(inner)];
  std::array<int64_t, BP_MAX_RANK> index{};
  int64_t number = begin / length;
  for (int axis = inner; axis-- > 0;) {
    const int64_t extent = loop.extents[static_cast<size_t>(axis)];
    index[static_cast<size_t>(axis)] = number % extent;
    advance(loop, at, axis, number % extent);
    number /= extent;
  }
  int64_t column = begin % length;
  advance(loop, at, inner, column);
  for (int64_t done = begin; done < end;) {
    const int64_t n = std::min(length - column, end - done);
    row(at.data(), strides.data(), n, context);
    done += n;
    advance(loop, at, inner, -column);
    column = 0;
    step(loop, at, inner, index);
  }
}

// How a loop is cut into tiles: planes of rows of tiles.
struct Tiling {
  Tiling(const Loop& loop, int64_t its_rows, int64_t its_cols)
      : rows(its_rows),
        cols(its_cols),
        plane_rows(loop.extents[static_cast<size_t>(loop.rank - 2)]),
        plane_cols(loop.extents[static_cast<size_t>(loop.rank - 1)]),
        tile_rows((plane_rows + rows - 1) / rows),
        tile_cols((plane_cols + cols - 1) / cols),
        count(loop.count / (plane_rows * plane_cols) * tile_rows * tile_cols) {}

  int64_t rows, cols;              // The extents of a tile.
  int64_t plane_rows, plane_cols;  // The extents of the two inner axes.
  int64_t tile_rows, tile_cols;    // The numbers of tiles in a plane.
  int64_t count;
};

// Runs the tiles [begin, end).
void run_tile_range(const Loop& loop, const Tiling& tiling, TileFunction* tile, const void* context,
                    int64_t begin, int64_t end) {
  uint64_t scalar = loop.scalar;
  const Addresses origin = first_addresses(loop, scalar);
  const int inner = loop.rank - 1;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t col = i % tiling.tile_cols * tiling.cols;
    const int64_t row = i / tiling.tile_cols % tiling.tile_rows * tiling.rows;
    Addresses at = origin;
    seek(loop, at, inner - 1, i / (tiling.tile_cols * tiling.tile_rows));
    advance(loop, at, inner - 1, row);
    advance(loop, at, inner, col);
    tile(loop, at.data(), std::min(tiling.rows, tiling.plane_rows - row),
         std::min(tiling.cols, tiling.plane_cols - col), context);
  }
}

struct RowsOfTile {
  RowFunction* row;
  const void* context;
};

// A transposed copy of an operand that lies across the rows of a tile.
struct alignas(64) TurnedOperand {
  std::byte bytes[kTileRows * kTileCols * 8];
};

// Gives the rows of a tile to a row function. If kMayTurn is true, it transposes operands so that
// their rows are dense. It never transposes the result.
template <bool kMayTurn>
void run_rows_of_tile(const Loop& loop, std::byte* const* data, int64_t rows, int64_t cols,
                      const void* context) {
  const auto& rows_of_tile = *static_cast<const RowsOfTile*>(context);
  const int inner = loop.rank - 1;
  std::array<TurnedOperand, kMayTurn ? kMaxOperands - 1 : 0> turned;
  Addresses at{};
  std::array<int64_t, kMaxOperands> strides{}, steps{};
  for (size_t k = 0; k < static_cast<size_t>(loop.operand_count); ++k) {
    const int64_t size_bytes = loop.size_bytes[k];
    at[k] = data[k];
    strides[k] = loop.strides[k][inner];
    steps[k] = loop.strides[k][inner - 1];
    if constexpr (kMayTurn) {
      if (k == 0 || steps[k] != size_bytes || strides[k] == size_bytes || strides[k] == 0) continue;
      at[k] = turned[k - 1].bytes;
      transpose_elements({.from = data[k],
                          .from_stride = strides[k],
                          .to = at[k],
                          .to_pitch = kTileCols,
                          .rows = rows,
                          .cols = cols},
                         size_bytes);
      strides[k] = size_bytes;
      steps[k] = kTileCols * size_bytes;
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    rows_of_tile.row(at.data(), strides.data(), cols, rows_of_tile.context);
    for (size_t k = 0; k < static_cast<size_t>(loop.operand_count); ++k) at[k] += steps[k];
  }
}

// If `streams` is false, the row function never writes past the caches.
template <bool kMayTurn>
void run_any(const Loop& loop, RowFunction* row, int threads, int64_t grain, const void* context,
             bool streams) {
  if (loop.count == 0) return;
  if (loop.is_tiled) {
    const RowsOfTile rows{row, context};
    return run_tiles(loop, run_rows_of_tile<kMayTurn>, kTileRows, kTileCols, threads, grain, &rows);
  }
  parallel_for(threads, loop.count, grain, [&](int64_t begin, int64_t end) {
    run_part(loop, row, context, begin, end);
    if (streams) hwy::FlushStream();  // Every thread sees streamed data after this.
  });
}

// Shorter rows are not streamed unless they are whole cache lines, because too many lines would be
// written in parts. The same holds for rows of a tile that do not begin with a line.
constexpr int64_t kStreamRowBytes = 1024;
constexpr uint64_t kLineBytes = 64;

}  // namespace

RowOptions choose_row_options(const Loop& loop) {
  if (loop.rank == 0) return {};
  const int inner = loop.rank - 1;
  int64_t bytes_per_element = 0;
  for (size_t k = 0; k < static_cast<size_t>(loop.operand_count); ++k) {
    if (k > 0 && loop.data[k] == loop.data[0]) return {};
    if (loop.strides[k][inner] != 0) bytes_per_element += loop.size_bytes[k];
  }
  if (loop.count * bytes_per_element < kStreamBytes) return {};
  const int64_t row_bytes = loop.extents[static_cast<size_t>(inner)] * loop.size_bytes[0];
  if (!loop.is_tiled && row_bytes >= kStreamRowBytes) return {.is_streamed = true};
  auto places = reinterpret_cast<uintptr_t>(loop.data[0]);
  for (int axis = 0; axis < inner; ++axis) {
    places |= static_cast<uintptr_t>(loop.strides[0][axis]);
  }
  if (!loop.is_tiled) places |= static_cast<uintptr_t>(row_bytes);
  return {.is_streamed = places % kLineBytes == 0};
}

void run_tiles(const Loop& loop, TileFunction* tile, int64_t tile_rows, int64_t tile_cols,
               int threads, int64_t grain, const void* context) {
  if (loop.count == 0) return;
  const Tiling tiling(loop, tile_rows, tile_cols);
  const int64_t tile_grain = std::max<int64_t>(1, grain / (tile_rows * tile_cols));
  parallel_for(threads, tiling.count, tile_grain, [&](int64_t begin, int64_t end) {
    run_tile_range(loop, tiling, tile, context, begin, end);
    hwy::FlushStream();
  });
}

void run_loop(const Loop& loop, RowFunction* row, int threads, int64_t grain, const void* context) {
  run_any<false>(loop, row, threads, grain, context, true);
}

void run_rows(const Loop& loop, RowFunction* row, int threads, int64_t grain,
              const RowOptions& options) {
  if (has_short_rows(loop) && !options.is_streamed) {
    return run_short_rows(loop, row, threads, grain, options);
  }
  run_any<true>(loop, row, threads, grain, &options, options.is_streamed);
}

void sum_blocks(const Loop& loop, RowFunction* row, double* sums, int threads, int64_t grain) {
  const int64_t block_grain = std::max<int64_t>(1, grain / kLoopBlock);
  const int64_t blocks = loop_block_count(loop.count);
  parallel_for(threads, blocks, block_grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      sums[i] = 0;
      const BlockSum block{sums + i};
      run_part(loop, row, &block, i * kLoopBlock, std::min(loop.count, (i + 1) * kLoopBlock));
    }
  });
}

bp_status submit_rows(Launch& launch, const Loop& loop, RowFunction* row, int64_t grain) {
  const RowOptions options = choose_row_options(loop);
  const int threads = launch.thread_count();
  return launch.submit_or_run([&] { run_rows(loop, row, threads, grain, options); },
                              [&] {
                                return [loop, row, grain, options, threads] {
                                  run_rows(loop, row, threads, grain, options);
                                };
                              });
}

}  // namespace bp::kernels
