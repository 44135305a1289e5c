// What the kernels of sdpa for tensor cores share: the sums of a warp over tiles of keys, and rows
// with values that are not finite.
#pragma once

#include "backends/cuda/kernels/sdpa_mma.cuh"

namespace bp::cuda {

struct MmaPlan {
  Attention a;
  View4 y, lse;
  float slope = 0;  // The scale of scores whose exponentials have the base 2.
};

// The sums of a warp. Of a lane, [i][h] is row 16 * i + 8 * h + lane_row() of the warp. Elements
// 2 * h and 2 * h + 1 of [i][n] are columns 8 * n + lane_column() and the next one of this row.
template <int kWidth>
struct WarpSums {
  float sums[2][kWidth / 8][4] = {};
  float peaks[2][2], totals[2][2] = {};

  __device__ WarpSums() {
    BP_UNROLL
    for (uint32_t r = 0; r < 4; ++r) peaks[r / 2][r % 2] = -infinity<float>();
  }
};

// Makes the scores of a tile weights, and adds them to the totals. Sets the factors by which a new
// peak scales earlier sums. A NaN is no peak, but its weight is NaN.
template <int kWidth, uint32_t kKeys>
__device__ __forceinline__ void weigh(WarpSums<kWidth>& warp, float slope, bool is_rest,
                                      WarpTile<kKeys>& scores, float (&factors)[2][2]) {
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t i = r / 2, h = r % 2;
    float top = -infinity<float>();
    BP_UNROLL
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
      top = fmaxf(top, fmaxf(scores.at[i][n][2 * h], scores.at[i][n][2 * h + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float peak = fmaxf(warp.peaks[i][h], top * slope);
    // If there is no score so far, the peak is not a number that can be subtracted.
    const float shift = peak == -infinity<float>() ? 0.0f : peak;
    factors[i][h] = exp2_fast(warp.peaks[i][h] - shift);
    warp.peaks[i][h] = peak;
    float total = 0;
    BP_UNROLL
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
      BP_UNROLL
      for (uint32_t e = 2 * h; e < 2 * h + 2; ++e) {
        scores.at[i][n][e] = exp2_fast(fmaf(scores.at[i][n][e], slope, -shift));
        total += scores.at[i][n][e];
      }
    }
    warp.totals[i][h] = warp.totals[i][h] * factors[i][h] + (is_rest ? 0.0f : total);
  }
}

// Writes the rows of a warp.
template <typename T, int kWidth>
__device__ __forceinline__ void store_rows(const MmaPlan& plan, const Problem& problem,
                                           uint32_t first_row, const WarpSums<kWidth>& warp) {
  const Attention& a = plan.a;
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t i = r / 2, h = r % 2, row = first_row + r * 8 + lane_row();
    if (row >= a.rows) continue;
    const float total = warp.totals[i][h];
    // The total is 0 only if no key is seen or all scores are -inf.
    const float inverse = total == 0 ? 0.0f : 1.0f / total;
    T* const y = reinterpret_cast<T*>(plan.y.data) + problem.row(a, plan.y, row);
    BP_UNROLL
    for (uint32_t n = 0; n < kWidth / 8; ++n) {
      const uint32_t column = n * 8 + lane_column();
      if (column >= a.value_width) continue;
      const float* const sums = &warp.sums[i][n][2 * h];
      *reinterpret_cast<uint32_t*>(y + column) = pack<T>(sums[0] * inverse, sums[1] * inverse);
    }
    if (plan.lse.data == nullptr || lane_column() != 0) continue;
    float* const lse = reinterpret_cast<float*>(plan.lse.data) + problem.row(a, plan.lse, row);
    *lse = total == 0 ? -infinity<float>() : warp.peaks[i][h] * kLogOf2 + log(total);
  }
}

// Joins the totals of the four lanes of a row. Returns, in every lane, whether all sums are finite.
template <int kWidth>
__device__ __forceinline__ bool end_sums(WarpSums<kWidth>& warp) {
  float check = 0;  // It becomes NaN if a total is not finite.
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    float& total = warp.totals[r / 2][r % 2];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    check += total * 0.0f;
  }
  return warp_reduce(check, Plus()) == 0 && are_finite(warp.sums);
}

// ---- Rows with values that are not finite -------------------------------------------------------

template <typename T>
__device__ float score_of(const Attention& a, const T* q, const T* k) {
  float sum = 0;
  for (uint32_t i = 0; i < a.width; ++i) sum += widen(q[i]) * widen(k[i]);
  return sum * static_cast<float>(a.scale);
}

// Computes one row by the warp, and reads only what the row sees. Lanes have keys, then columns.
template <typename T>
__device__ void compute_row(const MmaPlan& plan, const Problem& problem, uint32_t row) {
  const Attention& a = plan.a;
  const T* const q = reinterpret_cast<const T*>(a.q.data) + problem.row(a, a.q, row);
  const auto first_key = static_cast<uint32_t>(key_begin(a, row));
  const auto keys = static_cast<uint32_t>(key_limit(a, row));
  const auto score = [&](uint32_t key) {
    return score_of(a, q, reinterpret_cast<const T*>(a.k.data) + problem.key(a.k, key));
  };
  const uint32_t first = first_key + tile_lane();
  float peak = -infinity<float>(), total = 0;
  for (uint32_t key = first; key < keys; key += kWarpSize) peak = Larger()(peak, score(key));
  peak = warp_reduce(peak, Larger());
  const float shift = peak == -infinity<float>() ? 0.0f : peak;
  for (uint32_t key = first; key < keys; key += kWarpSize) total += exp(score(key) - shift);
  total = warp_reduce(total, Plus());
  const bool is_blind = total == 0;
  constexpr int kColumns = 4;
  float sums[kColumns] = {};
  for (uint32_t next = first_key; next < keys && !is_blind; next += kWarpSize) {
    const uint32_t mine = next + tile_lane();
    const float weight = mine < keys ? exp(score(mine) - shift) / total : 0.0f;
    for (uint32_t j = 0; j < kWarpSize && next + j < keys; ++j) {
      const float its_weight = __shfl_sync(kAllLanes, weight, static_cast<int>(j));
      const T* const v = reinterpret_cast<const T*>(a.v.data) + problem.key(a.v, next + j);
      for (uint32_t c = 0; c < kColumns; ++c) {
        const uint32_t column = c * kWarpSize + tile_lane();
        if (column < a.value_width) sums[c] += its_weight * widen(v[column]);
      }
    }
  }
  T* const y = reinterpret_cast<T*>(plan.y.data) + problem.row(a, plan.y, row);
  for (uint32_t c = 0; c < kColumns; ++c) {
    const uint32_t column = c * kWarpSize + tile_lane();
    if (column < a.value_width) y[column] = narrow<T>(sums[c]);
  }
  if (plan.lse.data != nullptr && tile_lane() == 0) {
    float* const lse = reinterpret_cast<float*>(plan.lse.data) + problem.row(a, plan.lse, row);
    *lse = is_blind ? -infinity<float>() : shift + log(total);
  }
}

// Ends a warp: it writes its rows, or computes them again if a sum is not finite.
template <typename T, int kWidth>
__device__ __forceinline__ void store_or_compute(const MmaPlan& plan, uint32_t first_row,
                                                 WarpSums<kWidth>& warp) {
  const Problem problem(plan.a, hidden(blockIdx.y));
  if (end_sums(warp)) return store_rows<T>(plan, problem, first_row, warp);
  for (uint32_t r = 0; r < kWarpRows && first_row + r < plan.a.rows; ++r) {
    compute_row<T>(plan, problem, first_row + r);
  }
}

// ---- On the host --------------------------------------------------------------------------------

inline MmaPlan mma_plan_of(const bp_sdpa_args& args) {
  MmaPlan plan;
  plan.a = attention_of(args);
  plan.y = view_of(args.y);
  plan.lse = view_of_rows(args.lse);
  plan.slope = slope_of(args);
  return plan;
}

// Returns the grid of a kernel with kBlockRows rows in each block.
inline dim3 row_blocks(const Attention& a) {
  return dim3(blocks_for(a.rows, kBlockRows), static_cast<unsigned>(a.batches * a.key_heads));
}

}  // namespace bp::cuda
