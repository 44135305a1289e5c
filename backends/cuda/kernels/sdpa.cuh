// Attention and its gradients. The query heads that share a head of keys become rows of one
// problem, one head after the other. So each (batch, head of keys) is one problem of (group *
// queries) rows by keys:
//
//   scores = scale * q k^T + bias    p = softmax(scores) over the keys seen    y = p v
//
// A soft cap bends the scores before the bias. A sink is one more term of the sum of a softmax, and
// dropout multiplies p by 0 or by 1 / (1 - dropout_p).
//
// A block works on tiles of 32 by 32 scores. Each of its four warps has 8 of one side, and its
// lanes are the other side. Only one tile of scores is in memory at a time. The order of all sums
// depends on the extents alone.
//
// A key that is not seen adds nothing, whatever its value is. Its weight is -0, which is not a
// value of the exponential. If a factor is not finite, products with such weights are skipped.
#pragma once

#include <algorithm>
#include <limits>

#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/philox.cuh"
#include "backends/cuda/kernels/rows.cuh"
#include "backends/cuda/kernels/scalar.hpp"
#include "backplane/shell/key_band.hpp"

namespace bp::cuda {

constexpr uint32_t kTileSide = 32, kTileWarps = 4, kTileThreads = kTileWarps * kWarpSize;
constexpr uint32_t kTileRows = kTileSide / kTileWarps;  // The rows of one warp.
constexpr uint32_t kDepth = 64;                         // The width in shared memory at once.

// A tensor of 4 axes, or none.
struct View4 {
  std::byte* data = nullptr;
  int64_t strides[4] = {};
};

// The operands that the forward and the backward op have.
struct Attention {
  View4 q, k, v, mask, bias, sinks;
  int64_t batches = 0, key_heads = 0, group = 0, queries = 0, keys = 0, rows = 0;
  uint32_t width = 0, value_width = 0;
  Divider by_queries;
  uint32_t key_tiles = 1, row_tiles = 1;  // That are summed at a time: TileSums.
  int64_t band_begin = 0, band_end = 0;   // KeyBand: query i sees keys from i + begin to i + end.
  double scale = 0, softcap = 0, dropout_p = 0;
  ScalarArgument seed, offset;
};

// One (batch, head of keys) of a block.
struct Problem {
  uint32_t batch, key_head;

  __device__ Problem(const Attention& a, uint32_t number)
      : batch(number / static_cast<uint32_t>(a.key_heads)),
        key_head(number % static_cast<uint32_t>(a.key_heads)) {}

  // Returns where `row` begins in a tensor with an axis of query heads and one of queries.
  __device__ __forceinline__ int64_t row(const Attention& a, const View4& view,
                                         uint32_t row) const {
    const uint32_t member = a.by_queries.divide(row);
    const int64_t query = row - static_cast<int64_t>(member) * a.queries;
    return batch * view.strides[0] + (key_head * a.group + member) * view.strides[1] +
           query * view.strides[2];
  }
  // Returns where `key` begins in k, v or their gradients.
  __device__ __forceinline__ int64_t key(const View4& view, uint32_t key) const {
    return batch * view.strides[0] + key_head * view.strides[1] + key * view.strides[2];
  }
};

// If the mask is ignored, a row sees the keys from key_begin() on, before key_limit().
__device__ __forceinline__ int64_t key_at_distance(const Attention& a, uint32_t row,
                                                   int64_t distance) {
  const int64_t query = row - static_cast<int64_t>(a.by_queries.divide(row)) * a.queries;
  const int64_t key = query + distance;
  return key < 0 ? 0 : key < a.keys ? key : a.keys;
}
__device__ __forceinline__ int64_t key_begin(const Attention& a, uint32_t row) {
  return a.band_begin <= -a.queries ? 0 : key_at_distance(a, row, a.band_begin);
}
__device__ __forceinline__ int64_t key_limit(const Attention& a, uint32_t row) {
  return a.band_end >= a.keys ? a.keys : key_at_distance(a, row, a.band_end);
}

// Returns the most keys that a row of a tile sees.
__device__ __forceinline__ uint32_t tile_key_limit(const Attention& a, uint32_t first_row) {
  int64_t most = 0;
  for (uint32_t r = 0; r < kTileSide && first_row + r < a.rows; ++r) {
    const int64_t limit = key_limit(a, first_row + r);
    most = limit > most ? limit : most;
  }
  return static_cast<uint32_t>(most);
}

// Returns the first key of the first tile of keys that a row of a tile sees.
__device__ __forceinline__ uint32_t tile_first_key(const Attention& a, uint32_t first_row) {
  int64_t least = a.keys;
  for (uint32_t r = 0; r < kTileSide && first_row + r < a.rows; ++r) {
    const int64_t key = key_begin(a, first_row + r);
    least = key < least ? key : least;
  }
  return static_cast<uint32_t>(least) / kTileSide * kTileSide;
}

// The shared memory of a block.
template <typename C>
struct Tiles {
  C* left;     // (kTileSide, kDepth)
  C* right;    // (kTileSide, kDepth + 1): lanes read down its rows.
  C* weights;  // (kTileSide, kTileSide)
  C* values;   // (kTileSide, columns)

  __device__ explicit Tiles(std::byte* memory)
      : left(reinterpret_cast<C*>(memory)),
        right(left + kTileSide * kDepth),
        weights(right + kTileSide * (kDepth + 1)),
        values(weights + kTileSide * kTileSide) {}
};
template <typename C>
constexpr size_t tiles_size_bytes(uint32_t columns) {
  return sizeof(C) * (kTileSide * kDepth + kTileSide * (kDepth + 1) + kTileSide * kTileSide +
                      kTileSide * columns);
}

__device__ __forceinline__ uint32_t tile_lane() { return threadIdx.x % kWarpSize; }
__device__ __forceinline__ uint32_t tile_row() { return threadIdx.x / kWarpSize * kTileRows; }

// Loads the elements [from, from + depth) of rows, with zeros where there are none. row_at(i) is
// where row i of the tile begins, or NULL.
template <typename T, typename C, class RowAt>
__device__ __forceinline__ void load_tile(C* to, uint32_t to_stride, uint32_t from, uint32_t width,
                                          uint32_t depth, int64_t stride, const RowAt& row_at) {
  for (uint32_t i = threadIdx.x; i < kTileSide * depth; i += kTileThreads) {
    const uint32_t row = i / depth, column = i % depth;
    const T* const at = row_at(row);
    const bool is_inside = at != nullptr && from + column < width;
    to[row * to_stride + column] = is_inside ? widen(at[(from + column) * stride]) : C{0};
  }
}

// Sets sums[r] to the product of row tile_row() + r of the left side and row tile_lane() of the
// right side.
template <typename T, typename C, class LeftAt, class RightAt>
__device__ __forceinline__ void multiply_tiles(const Tiles<C>& tiles, uint32_t width,
                                               const LeftAt& left_at, int64_t left_stride,
                                               const RightAt& right_at, int64_t right_stride,
                                               C (&sums)[kTileRows]) {
  BP_UNROLL
  for (uint32_t r = 0; r < kTileRows; ++r) sums[r] = 0;
  C parts[kTileRows];
  const C* const left = tiles.left + tile_row() * kDepth;
  const C* const right = tiles.right + tile_lane() * (kDepth + 1);
  for (uint32_t from = 0; from < width; from += kDepth) {
    const uint32_t depth = width - from < kDepth ? width - from : kDepth;
    __syncthreads();
    load_tile<T>(tiles.left, kDepth, from, width, depth, left_stride, left_at);
    load_tile<T>(tiles.right, kDepth + 1, from, width, depth, right_stride, right_at);
    __syncthreads();
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) parts[r] = 0;
    for (uint32_t d = 0; d < depth; ++d) {
      const C value = right[d];
      BP_UNROLL
      for (uint32_t r = 0; r < kTileRows; ++r) parts[r] += left[r * kDepth + d] * value;
    }
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) sums[r] += parts[r];
  }
}

// Copies `columns` elements of each row, from number `from` on, to tiles.values. Returns, in every
// thread, whether one of them is not finite.
template <typename T, typename C, class RowAt>
__device__ __forceinline__ bool load_values(const Tiles<C>& tiles, uint32_t from, uint32_t width,
                                            uint32_t columns, int64_t stride, const RowAt& row_at) {
  __shared__ int has_infinite;
  __syncthreads();  // Those of the tile before were read, and the weights are written.
  if (threadIdx.x == 0) has_infinite = 0;
  load_tile<T>(tiles.values, columns, from, width, columns, stride, row_at);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kTileSide * columns; i += kTileThreads) {
    if (!isfinite(tiles.values[i])) store_same(&has_infinite, 1);
  }
  __syncthreads();
  return has_infinite != 0;
}

template <typename C>
__device__ __forceinline__ bool is_hidden(C weight) {
  return weight == 0 && std::signbit(weight);
}

// The sums of the rows of this warp over tiles. In f32 the sums of some tiles are added first, and
// then added to the total, so that the error grows with the square root of the number of terms.
template <typename C, int kColumns>
struct TileSums {
  static constexpr bool kHasBlocks = std::is_same_v<C, float>;
  C now[kTileRows][kColumns] = {};
  C before[kHasBlocks ? kTileRows : 1][kColumns] = {};
  uint32_t tiles = 0;

  __device__ __forceinline__ void scale(uint32_t r, C factor) {
    BP_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      now[r][c] *= factor;
      if constexpr (kHasBlocks) before[r][c] *= factor;
    }
  }
  // Ends a tile. `block` tiles are summed at a time.
  __device__ __forceinline__ void end_tile(uint32_t block) {
    if constexpr (kHasBlocks) {
      if (++tiles != block) return;
      tiles = 0;
      BP_UNROLL
      for (uint32_t r = 0; r < kTileRows; ++r) {
        BP_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          before[r][c] += now[r][c];
          now[r][c] = 0;
        }
      }
    }
  }
  __device__ __forceinline__ C total(uint32_t r, int c) const {
    if constexpr (kHasBlocks) return before[r][c] + now[r][c];
    return now[r][c];
  }
};

// Adds weights * values to the rows of this warp. Lane l has the columns l, l + 32 and so on.
template <int kColumns, typename C>
__device__ __forceinline__ void add_products(const Tiles<C>& tiles, bool has_infinite,
                                             C (&sums)[kTileRows][kColumns]) {
  const C* const weights = tiles.weights + tile_row() * kTileSide;
  for (uint32_t k = 0; k < kTileSide; ++k) {
    C values[kColumns];
    BP_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      values[c] = tiles.values[k * kColumns * kWarpSize + c * kWarpSize + tile_lane()];
    }
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const C weight = weights[r * kTileSide + k];
      if (has_infinite && is_hidden(weight)) continue;
      BP_UNROLL
      for (int c = 0; c < kColumns; ++c) sums[r][c] += weight * values[c];
    }
  }
  __syncwarp();  // Before the weights of the next tile are written.
}

// Returns the query head of a row.
__device__ __forceinline__ int64_t head_of(const Attention& a, const Problem& problem,
                                           uint32_t row) {
  return problem.key_head * a.group + a.by_queries.divide(row);
}

template <typename C>
__device__ __forceinline__ C sink_of(const Attention& a, int64_t head) {
  return reinterpret_cast<const C*>(a.sinks.data)[head * a.sinks.strides[0]];
}

// Returns what dropout multiplies the weight of a row and a key by.
template <typename C>
__device__ __forceinline__ C kept_of(const Attention& a, const Problem& problem, uint32_t row,
                                     uint32_t key) {
  if (a.dropout_p == 0 || row >= a.rows) return C{1};
  const int64_t member = a.by_queries.divide(row), query = row - member * a.queries;
  const int64_t head = problem.batch * a.key_heads * a.group + head_of(a, problem, row);
  const auto number = static_cast<uint64_t>((head * a.queries + query) * a.keys + key);
  const PhiloxBlock block = philox(a.seed.get<uint64_t>(), a.offset.get<uint64_t>(), number / 4);
  const bool is_kept =
      static_cast<double>(uniform_f32(block.word(static_cast<uint32_t>(number % 4)))) >=
      a.dropout_p;
  return is_kept ? static_cast<C>(1 / (1 - a.dropout_p)) : C{0};
}

// Returns the score of a row and a key, and whether the row sees the key. `slope` becomes the slope
// of the soft cap.
template <typename T, typename C>
__device__ __forceinline__ bool finish_score(const Attention& a, const Problem& problem,
                                             uint32_t row, uint32_t key, C& score, C& slope) {
  slope = C{1};
  if (row >= a.rows || key < key_begin(a, row) || key >= key_limit(a, row)) return false;
  score *= static_cast<C>(a.scale);
  if (a.softcap != 0) {
    const C bent = tanh(score / static_cast<C>(a.softcap));
    score = static_cast<C>(a.softcap) * bent;
    slope -= bent * bent;
  }
  if (a.mask.data != nullptr) {
    const int64_t at = problem.row(a, a.mask, row) + key * a.mask.strides[3];
    if (reinterpret_cast<const uint8_t*>(a.mask.data)[at] == 0) return false;
  }
  if (a.bias.data != nullptr) {
    const int64_t at = problem.row(a, a.bias, row) + key * a.bias.strides[3];
    score += widen(reinterpret_cast<const T*>(a.bias.data)[at]);
  }
  return true;
}

// ---- On the host --------------------------------------------------------------------------------

inline View4 view_of(const bp_tensor* tensor) {
  View4 view;
  if (tensor == nullptr || element_count(*tensor) == 0) return view;
  view.data = data<std::byte>(*tensor);
  std::copy_n(tensor->strides, 4, view.strides);
  return view;
}

// sinks have one axis.
inline View4 view_of_heads(const bp_tensor* tensor) {
  View4 view;
  if (tensor == nullptr || element_count(*tensor) == 0) return view;
  view.data = data<std::byte>(*tensor);
  view.strides[0] = tensor->strides[0];
  return view;
}

// A frame may have neither the tensor nor the scalar, which stands for 0.
inline ScalarArgument seed_argument(const bp_tensor* tensor, const bp_scalar& scalar) {
  if (tensor == nullptr && scalar.dtype == 0) return {};
  return {tensor, scalar, BP_U64};
}

// lse has no axis of width.
inline View4 view_of_rows(const bp_tensor* tensor) {
  View4 view;
  if (tensor == nullptr || element_count(*tensor) == 0) return view;
  view.data = data<std::byte>(*tensor);
  std::copy_n(tensor->strides, 3, view.strides);
  return view;
}

// Returns the cap that acts. A cap below the normal numbers of f32 makes every score 0, and so does
// the smallest of them.
inline double least_softcap(double softcap, bp_dtype dtype) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  return dtype == BP_F64 || softcap == 0 ? softcap : std::max(softcap, kLeast);
}

template <typename Args>
Attention attention_of(const Args& args) {
  Attention a;
  a.q = view_of(args.q);
  a.k = view_of(args.k);
  a.v = view_of(args.v);
  a.mask = view_of(args.mask);
  a.bias = view_of(args.bias);
  a.batches = args.q->shape[0];
  a.key_heads = args.k->shape[1];
  a.group = args.q->shape[1] / std::max<int64_t>(1, a.key_heads);
  a.queries = args.q->shape[2];
  a.keys = args.k->shape[2];
  a.rows = a.group * a.queries;
  a.width = static_cast<uint32_t>(args.q->shape[3]);
  a.value_width = static_cast<uint32_t>(args.v->shape[3]);
  a.by_queries = Divider(static_cast<uint32_t>(std::max<int64_t>(1, a.queries)));
  a.key_tiles = static_cast<uint32_t>(block_of_sum(a.keys, kTileSide) / kTileSide);
  a.row_tiles = static_cast<uint32_t>(block_of_sum(a.rows, kTileSide) / kTileSide);
  const KeyBand band = key_band(args);
  a.band_begin = band.begin;
  a.band_end = band.end;
  a.scale = args.scale;
  a.softcap = least_softcap(args.softcap, args.q->dtype);
  a.sinks = view_of_heads(args.sinks);
  a.dropout_p = args.dropout_p;
  a.seed = seed_argument(args.seed, args.seed_scalar);
  a.offset = seed_argument(args.offset, args.offset_scalar);
  return a;
}

// Refuses extents that 32 bits or a grid of blocks cannot count.
template <typename Args>
bp_reason attention_supports(const Args& args) {
  const int64_t rows = args.q->shape[1] * args.q->shape[2];
  const bool is_small = rows <= kMaxLaunchElements && args.k->shape[2] <= kMaxLaunchElements &&
                        args.q->shape[3] <= kMaxLaunchElements &&
                        args.v->shape[3] <= kMaxLaunchElements;
  if (!is_small) return "an extent is above 2^30";
  if (args.q->shape[0] * args.k->shape[1] > 65535) return "there are more than 65535 heads of keys";
  return nullptr;
}

// Calls fn(Lanes<n>, passes) for sums of 32 * n columns, of which `passes` cover a width.
template <typename Fn>
bp_status with_columns(uint32_t width, const Fn& fn) {
  const auto passes = [width](uint32_t columns) {
    return std::max(1u, (width + columns - 1) / columns);
  };
  return width <= 2 * kWarpSize ? fn(Lanes<2>(), passes(2 * kWarpSize))
                                : fn(Lanes<4>(), passes(4 * kWarpSize));
}

}  // namespace bp::cuda
