// What the parts of sdpa_backward_mma.cu share: the plan, the weights of a tile, and the scale of
// gradients of scores.
#pragma once

#include "backends/cuda/kernels/sdpa_backward.cuh"
#include "backends/cuda/kernels/sdpa_mma.cuh"

namespace bp::cuda {

// The rows of a tile that a block of keys walks.
constexpr uint32_t kWalkedRows = 64;

struct MmaBackwardPlan {
  BackwardPlan b;
  // The numbers of rows, (problems, stride), where the stride is a multiple of kBlockRows. Those
  // behind the last row give it no weights. A weight is 2^(slope * score + shift).
  float *shifts = nullptr, *deltas = nullptr;
  uint8_t *grad_q_marks = nullptr, *grad_k_marks = nullptr, *grad_v_marks = nullptr;
  uint32_t stride = 0;
  float slope = 0;
};

// Weights of f16 are multiplied by 2^15, so that those below 2^-14 keep their digits too.
template <typename T>
constexpr int kWeightBits = std::is_same_v<T, Float16> ? 15 : 0;
template <typename T>
constexpr float kWeightUnit = std::is_same_v<T, Float16> ? 0x1p-15f : 1.0f;

// Makes products of q and k weights. shift_of(i, n, e) belongs to element e of [i][n].
template <uint32_t kColumns, class ShiftOf>
__device__ __forceinline__ void weigh(float slope, const ShiftOf& shift_of,
                                      WarpTile<kColumns>& tile) {
  BP_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    BP_UNROLL
    for (uint32_t n = 0; n < kColumns / 8; ++n) {
      BP_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        tile.at[i][n][e] = exp2_fast(fmaf(tile.at[i][n][e], slope, shift_of(i, n, e)));
      }
    }
  }
}

// Makes eight products of grad_y and v, those of [i][2 * n] and [i][2 * n + 1], gradients of
// scores, times 1 / kWeightUnit: weight * (product - delta).
template <typename T, uint32_t kColumns, class DeltaOf>
__device__ __forceinline__ void finish_gradients(const uint32_t (&weights)[4],
                                                 const DeltaOf& delta_of, uint32_t i, uint32_t n,
                                                 WarpTile<kColumns>& tile) {
  BP_UNROLL
  for (uint32_t p = 0; p < 4; ++p) {
    const uint32_t column = 2 * n + p / 2, e = p % 2 * 2;
    float* const at = &tile.at[i][column][e];
    at[0] = low_of<T>(weights[p]) * (at[0] - delta_of(i, column, e));
    at[1] = high_of<T>(weights[p]) * (at[1] - delta_of(i, column, e + 1));
  }
}

// The factor, a power of 2, by which a warp multiplies gradients of scores before they are rounded
// to f16, so that small ones keep their digits and large ones are finite. It falls where a tile has
// larger gradients, and the sums so far follow it. bf16 has the range of f32 and needs no factor.
template <typename T>
class GradientScale {
 public:
  template <uint32_t kColumns, uint32_t kCount>
  __device__ __forceinline__ void apply(WarpTile<kColumns>& tile, float (&sums)[2][kCount][4]) {
    if constexpr (std::is_same_v<T, Float16>) {
      constexpr uint32_t kElements = 8 * (kColumns / 8);
      float* const elements = &tile.at[0][0][0];
      float top = 0;
      BP_UNROLL
      for (uint32_t e = 0; e < kElements; ++e) top = fmaxf(top, fabs(elements[e]));
      top = warp_reduce(top, Larger());
      if (top * factor_ > 0x1p15f) {
        const float factor = largest_factor(top), ratio = factor / factor_;
        BP_UNROLL
        for (uint32_t e = 0; e < 8 * kCount; ++e) (&sums[0][0][0])[e] *= ratio;
        factor_ = factor;
      }
      BP_UNROLL
      for (uint32_t e = 0; e < kElements; ++e) elements[e] *= factor_;
    }
  }
  // Returns what turns the sums into sums of gradients.
  __device__ __forceinline__ float unit() const { return kWeightUnit<T> / factor_; }

 private:
  // Returns the power of 2 that brings `top` to 2^14 or above, but below 2^15.
  static __device__ __forceinline__ float largest_factor(float top) {
    const uint32_t exponent = bits_as<uint32_t>(top) >> 23;
    return bits_as<float>((2 * 127 + 14 - exponent) << 23);
  }

  float factor_ = std::is_same_v<T, Float16> ? 0x1p9f : 1.0f;
};

// Makes the products of keys that a row does not see -inf. The tile has keys as its rows.
template <uint32_t kColumns>
__device__ __forceinline__ void hide_from_rows(const Attention& a, uint32_t first_row,
                                               uint32_t first_key, WarpTile<kColumns>& tile) {
  BP_UNROLL
  for (uint32_t p = 0; p < kColumns / 4; ++p) {
    const uint32_t n = p / 2, e = p % 2, row = first_row + n * 8 + lane_column() + e;
    const auto begin = static_cast<uint32_t>(key_begin(a, row));
    const auto limit = static_cast<uint32_t>(key_limit(a, row));
    BP_UNROLL
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t key = first_key + r * 8 + lane_row();
      if (key < begin || key >= limit) tile.at[r / 2][n][r % 2 * 2 + e] = -infinity<float>();
    }
  }
}

// Writes the first `width` columns of a row of a gradient, one of the four of a lane: 16 * i + 8 *
// h + lane_row() of the warp.
template <typename T, uint32_t kCount>
__device__ __forceinline__ void store_row(T* to, uint32_t width, float unit,
                                          const float (&sums)[2][kCount][4], uint32_t i,
                                          uint32_t h) {
  BP_UNROLL
  for (uint32_t n = 0; n < kCount; ++n) {
    const uint32_t column = n * 8 + lane_column();
    if (column >= width) continue;
    const float* const pair = &sums[i][n][2 * h];
    *reinterpret_cast<uint32_t*>(to + column) = pack<T>(pair[0] * unit, pair[1] * unit);
  }
}

// Marks the tile of a warp for the plain kernels if one of its sums is not finite. The marks are
// (problems, tiles), and a problem has `count` rows or keys.
template <uint32_t kCount>
__device__ __forceinline__ void mark_tile(uint8_t* marks, int64_t count, uint32_t first,
                                          const float (&sums)[2][kCount][4]) {
  static_assert(kWarpRows == kTileSide);
  const bool is_finite = are_finite(sums);
  const int64_t tiles = (count + kTileSide - 1) / kTileSide;
  if (tile_lane() == 0) marks[blockIdx.y * tiles + first / kTileSide] = is_finite ? 0 : 1;
}

}  // namespace bp::cuda
