// A tile of rows of an attention, for sdpa and paged_attention. The block walks the keys that the
// rows see, tile by tile, and keeps for each row the largest score, the sum of the exponentials and
// the sum of values so far (Milakov, Gimelshein 2018; Dao and others 2022). A larger score scales
// the two sums down.
#pragma once

#include "backends/cuda/kernels/sdpa.cuh"

namespace bp::cuda {

struct AttentionResults {
  View4 y, lse;
};

// The rows of a tile that a thread has: the largest score of each, and its sums.
template <typename C, int kColumns>
struct TileRows {
  C peaks[kTileRows];
  TileSums<C, 1> totals;
  TileSums<C, kColumns> sums;

  __device__ TileRows() {
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) peaks[r] = -infinity<C>();
  }
};

// Returns the first column of v that this block has.
template <int kColumns>
__device__ __forceinline__ uint32_t tile_column() {
  return blockIdx.z * kColumns * kWarpSize;
}

// Walks the keys from `first_key` to `end`, for the rows from `first_row` on. The block's number z
// says which columns of v it has. key_at(view, key) returns where a key begins in k or v.
template <typename T, int kColumns, class KeyAt>
__device__ __forceinline__ void walk_keys(const Attention& a, const Problem& problem,
                                          uint32_t first_row, uint32_t first_key, uint32_t end,
                                          const KeyAt& key_at,
                                          TileRows<Compute<T>, kColumns>& rows) {
  using C = Compute<T>;
  const Tiles<C> tiles(dynamic_shared());
  const uint32_t first_column = tile_column<kColumns>();
  const auto q_at = [&](uint32_t i) -> const T* {
    if (first_row + i >= a.rows) return nullptr;
    return reinterpret_cast<const T*>(a.q.data) + problem.row(a, a.q, first_row + i);
  };
  for (; first_key < end; first_key += kTileSide) {
    const auto at = [&](const View4& view) {
      return [&, first_key](uint32_t i) -> const T* {
        if (first_key + i >= a.keys) return nullptr;
        return key_at(view, first_key + i);
      };
    };
    C scores[kTileRows];
    multiply_tiles<T>(tiles, a.width, q_at, a.q.strides[3], at(a.k), a.k.strides[3], scores);
    BP_UNROLL
    for (uint32_t r = 0; r < kTileRows; ++r) {
      const uint32_t row = first_row + tile_row() + r, key = first_key + tile_lane();
      C score = scores[r], slope;
      const bool is_seen = finish_score<T>(a, problem, row, key, score, slope);
      const C peak =
          warp_reduce(is_seen ? Larger()(rows.peaks[r], score) : rows.peaks[r], Larger());
      // If there is no score so far, the peak is not a number that can be subtracted.
      const C shift = peak == -infinity<C>() ? C{0} : peak;
      const C weight = is_seen ? exp(score - shift) : C(-0.0);
      const C factor = exp(rows.peaks[r] - shift);
      rows.totals.scale(r, factor);
      rows.totals.now[r][0] += warp_reduce(weight, Plus());
      rows.sums.scale(r, factor);
      rows.peaks[r] = peak;
      // A weight that is dropped becomes -0, and adds nothing either.
      const C kept = kept_of<C>(a, problem, row, key);
      tiles.weights[(tile_row() + r) * kTileSide + tile_lane()] =
          kept == 0 ? C(-0.0) : weight * kept;
    }
    const bool has_infinite = load_values<T>(tiles, first_column, a.value_width,
                                             kColumns * kWarpSize, a.v.strides[3], at(a.v));
    add_products<kColumns>(tiles, has_infinite, rows.sums.now);
    rows.totals.end_tile(a.key_tiles);
    rows.sums.end_tile(a.key_tiles);
  }
}

// Writes the rows from `first_row` on.
template <typename T, int kColumns>
__device__ __forceinline__ void store_tile(const Attention& a, const AttentionResults& results,
                                           const Problem& problem, uint32_t first_row,
                                           const TileRows<Compute<T>, kColumns>& rows) {
  using C = Compute<T>;
  BP_UNROLL
  for (uint32_t r = 0; r < kTileRows; ++r) {
    const uint32_t row = first_row + tile_row() + r;
    if (row >= a.rows) continue;
    // The total is 0 only if no key is seen or all scores are -inf, because the largest score has
    // the weight 1.
    C total = rows.totals.total(r, 0), peak = rows.peaks[r];
    const bool is_blind = total == 0;
    C divisor = total;
    if (a.sinks.data != nullptr) {  // A sink joins the denominator exp(peak) * total.
      const C sink = sink_of<C>(a, head_of(a, problem, row));
      divisor += exp(sink - peak);
      const C larger = peak > sink ? peak : sink;
      if (larger != -infinity<C>()) {
        total = total * exp(peak - larger) + exp(sink - larger);
        peak = larger;
      }
    }
    T* const y = reinterpret_cast<T*>(results.y.data) + problem.row(a, results.y, row);
    BP_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t column = tile_column<kColumns>() + c * kWarpSize + tile_lane();
      if (column >= a.value_width) continue;
      y[column * results.y.strides[3]] =
          narrow<T>(is_blind ? C{0} : rows.sums.total(r, c) / divisor);
    }
    if (results.lse.data != nullptr && blockIdx.z == 0 && tile_lane() == 0) {
      C* const lse = reinterpret_cast<C*>(results.lse.data) + problem.row(a, results.lse, row);
      *lse = total == 0 ? -infinity<C>() : peak + log(total);
    }
  }
}

// Computes the rows from `first_row` on.
template <typename T, int kColumns, class KeyAt>
__device__ __forceinline__ void attend_tile(const Attention& a, const AttentionResults& results,
                                            const Problem& problem, uint32_t first_row,
                                            const KeyAt& key_at) {
  TileRows<Compute<T>, kColumns> rows;
  walk_keys<T, kColumns>(a, problem, first_row, tile_first_key(a, first_row),
                         tile_key_limit(a, first_row), key_at, rows);
  store_tile<T, kColumns>(a, results, problem, first_row, rows);
}

}  // namespace bp::cuda
