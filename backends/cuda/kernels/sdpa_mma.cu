// sdpa of f16 and bf16 by tensor cores, in the way of FlashAttention-2 (Dao 2023).
//
// A block has 128 rows, 32 for each of its 4 warps, and walks the keys that its rows see in tiles
// of 48 or 64. The next tile is copied to the other half of shared memory meanwhile. A warp keeps
// its scores, weights and sums in registers:
//
//   scores = q k^T    weights = 2^(slope * score - peak)    sums = sums * factor + weights v
//
// Precision. Each weight is the sum of two numbers of the dtype of v, so the second product takes
// two steps. The error of a weight is at most 2^-17 of it in bf16, and 2^-23 in f16 or 2^-25 of the
// largest weight. This is below what R6 allows for a row that sees 48 keys. If a row of a block
// sees fewer, and the dtype is bf16, the block takes the first tile once more, for the rest of each
// weight. Tensor cores truncate their sums, so the sums of a tile begin at 0, and are added to
// those of the tiles before by an addition that rounds.
//
// Values that are not finite. A weight of 0, or a weight in two parts, turns an infinite value into
// NaN, also for rows that do not see it. No later step makes such a sum finite again. So a warp
// looks at its sums at the end. If one is not finite, it computes its rows again, a row at a time.
//
// Speed. The limit is the rate of mma.sync, about 0.6 of the peak of an H100, and a third of the
// products is for the second parts of the weights. So the operations of the formula can reach about
// 0.4 of the peak. Loads from shared memory take nearly as long as the products: what a warp loads
// serves 32 rows. A thread has 255 registers, and an SM two blocks.
#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_mma.cuh"

namespace bp::cuda {
namespace {

// For a row that sees so many keys, two parts of a weight are enough.
constexpr uint32_t kFewKeys = 48;

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

// The scores, and then the weights, of 32 rows and the keys of a tile, laid out as the sums are.
template <int kWidth>
struct Scores {
  float at[2][kTileKeys<kWidth> / 8][4] = {};
};

// Multiplies 32 rows of q by a tile of keys.
template <typename T, int kWidth>
__device__ __forceinline__ void multiply_keys(const MatrixAt<kWidth>& q, const MatrixAt<kWidth>& k,
                                              Scores<kWidth>& scores) {
  BP_UNROLL_BY_2  // With all columns at once the registers do not suffice.
      for (uint32_t c = 0; c < kWidth / 16; ++c) {
    const SharedAddress q_place = q(c), k_place = k(c);
    uint32_t rows[2][4];
    BP_UNROLL
    for (uint32_t i = 0; i < 2; ++i) load_matrices(rows[i], q_place + i * q.kNextBytes);
    BP_UNROLL
    for (uint32_t n = 0; n < kTileKeys<kWidth> / 16; ++n) {
      uint32_t keys[4];
      load_matrices(keys, k_place + n * k.kNextBytes);
      BP_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        mma<T>(scores.at[i][2 * n], rows[i], keys[0], keys[1]);
        mma<T>(scores.at[i][2 * n + 1], rows[i], keys[2], keys[3]);
      }
    }
  }
}

// Makes the scores of keys that a row does not see -inf.
template <int kWidth>
__device__ __forceinline__ void hide_keys(const Attention& a, uint32_t first_row,
                                          uint32_t first_key, Scores<kWidth>& scores) {
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t row = first_row + r * 8 + lane_row();
    const uint32_t limit = row < a.rows ? static_cast<uint32_t>(key_limit(a, row)) : 0;
    BP_UNROLL
    for (uint32_t n = 0; n < kTileKeys<kWidth> / 8; ++n) {
      BP_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t key = first_key + n * 8 + lane_column() + e;
        if (key >= limit) scores.at[r / 2][n][r % 2 * 2 + e] = -infinity<float>();
      }
    }
  }
}

// Makes the scores of a tile weights, and adds them to the totals. Sets the factors by which a new
// peak scales earlier sums. A NaN is no peak, but its weight is NaN.
template <int kWidth>
__device__ __forceinline__ void weigh(WarpSums<kWidth>& warp, float slope, bool is_rest,
                                      Scores<kWidth>& scores, float (&factors)[2][2]) {
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t i = r / 2, h = r % 2;
    float top = -infinity<float>();
    BP_UNROLL
    for (uint32_t n = 0; n < kTileKeys<kWidth> / 8; ++n) {
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
    for (uint32_t n = 0; n < kTileKeys<kWidth> / 8; ++n) {
      BP_UNROLL
      for (uint32_t e = 2 * h; e < 2 * h + 2; ++e) {
        scores.at[i][n][e] = exp2_fast(fmaf(scores.at[i][n][e], slope, -shift));
        total += scores.at[i][n][e];
      }
    }
    warp.totals[i][h] = warp.totals[i][h] * factors[i][h] + (is_rest ? 0.0f : total);
  }
}

// The weights of a tile, each in two parts, as factors of a product: 16 rows by 16 keys.
template <int kWidth>
struct Weights {
  uint32_t high[2][kTileKeys<kWidth> / 16][4], low[2][kTileKeys<kWidth> / 16][4];
};

template <typename T, int kWidth>
__device__ __forceinline__ void split(const Scores<kWidth>& weights, Weights<kWidth>& to) {
  BP_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    BP_UNROLL
    for (uint32_t p = 0; p < kTileKeys<kWidth> / 4;
         ++p) {  // Pairs of a row, and of the row 8 below.
      const float a = weights.at[i][p / 2][p % 2 * 2], b = weights.at[i][p / 2][p % 2 * 2 + 1];
      const uint32_t high = pack<T>(a, b);
      to.high[i][p / 4][p % 4] = high;
      to.low[i][p / 4][p % 4] = pack<T>(a - low_of<T>(high), b - high_of<T>(high));
    }
  }
}

// Leaves what two parts of a weight do not hold.
template <typename T, int kWidth>
__device__ __forceinline__ void leave_rest(Scores<kWidth>& weights) {
  BP_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    BP_UNROLL
    for (uint32_t n = 0; n < kTileKeys<kWidth> / 8; ++n) {
      BP_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        float& weight = weights.at[i][n][e];
        weight -= widen(narrow<T>(weight));
        weight -= widen(narrow<T>(weight));
      }
    }
  }
}

// Adds weights * values of a tile.
template <typename T, int kWidth>
__device__ __forceinline__ void add_values(const Weights<kWidth>& weights,
                                           const MatrixAt<kWidth>& v, const float (&factors)[2][2],
                                           WarpSums<kWidth>& warp) {
  BP_UNROLL
  for (uint32_t c = 0; c < kWidth / 16; ++c) {
    const SharedAddress place = v(c);
    float tile[2][2][4] = {};
    BP_UNROLL
    for (uint32_t n = 0; n < kTileKeys<kWidth> / 16; ++n) {
      uint32_t values[4];
      load_transposed(values, place + n * v.kNextBytes);
      BP_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        mma<T>(tile[j / 2][j % 2], weights.high[j / 2][n], values[j % 2 * 2],
               values[j % 2 * 2 + 1]);
      }
      BP_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        mma<T>(tile[j / 2][j % 2], weights.low[j / 2][n], values[j % 2 * 2], values[j % 2 * 2 + 1]);
      }
    }
    BP_UNROLL
    for (uint32_t e = 0; e < 16; ++e) {
      const uint32_t i = e / 8, half = e / 4 % 2;
      float& sum = warp.sums[i][2 * c + half][e % 4];
      sum = fmaf(sum, factors[i][e % 4 / 2], tile[i][half][e % 4]);
    }
  }
}

// ---- The kernel ---------------------------------------------------------------------------------

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
    constexpr float kLog2 = 0.693147180559945309f;
    float* const lse = reinterpret_cast<float*>(plan.lse.data) + problem.row(a, plan.lse, row);
    *lse = total == 0 ? -infinity<float>() : warp.peaks[i][h] * kLog2 + log(total);
  }
}

// Joins the totals of the four lanes of a row. Returns, in every lane, whether all sums are finite.
template <int kWidth>
__device__ __forceinline__ bool end_sums(WarpSums<kWidth>& warp) {
  float check = 0;  // It becomes NaN if a sum is not finite.
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    float& total = warp.totals[r / 2][r % 2];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    check += total * 0.0f;
    BP_UNROLL
    for (uint32_t n = 0; n < kWidth / 8; ++n) {
      check += warp.sums[r / 2][n][r % 2 * 2] * 0.0f;
      check += warp.sums[r / 2][n][r % 2 * 2 + 1] * 0.0f;
    }
  }
  return warp_reduce(check, Plus()) == 0;
}

// The grid has (tiles of rows, problems) blocks. The rows that see most keys come first.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMmaThreads, 2) sdpa_mma_kernel(MmaPlan plan) {
  constexpr uint32_t kKeys = kTileKeys<kWidth>, kTileBytes = kKeys * kRowBytes<kWidth>;
  const Attention& a = plan.a;
  const Problem problem(a, blockIdx.y);
  const uint32_t block_row = (gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const uint32_t first_row = block_row + threadIdx.x / kWarpSize * kWarpRows;
  const SharedAddress q_tile = shared_address(dynamic_shared());
  const SharedAddress k_tiles = q_tile + kBlockRows * kRowBytes<kWidth>;
  const SharedAddress v_tiles = k_tiles + 2 * kTileBytes;
  const T* const k = reinterpret_cast<const T*>(a.k.data) + problem.key(a.k, 0);
  const T* const v = reinterpret_cast<const T*>(a.v.data) + problem.key(a.v, 0);
  // Step n takes tile n - repeats, and the first step takes the first tile in any case.
  const uint32_t tiles = (most_keys(a, block_row, kBlockRows) + kKeys - 1) / kKeys;
  const bool has_few = least_keys(a, block_row, kBlockRows) < kFewKeys && tiles != 0;
  const uint32_t repeats = std::is_same_v<T, BFloat16> && has_few ? 1 : 0;
  const uint32_t steps = tiles + repeats;
  const auto first_key_of = [&](uint32_t n) { return n == 0 ? 0 : (n - repeats) * kKeys; };
  const auto copy_tile = [&](uint32_t n) {
    const uint32_t first_key = first_key_of(n), offset = n % 2 * kTileBytes;
    copy_rows<kWidth, kKeys>(k_tiles + offset, a.width, k, [&](uint32_t i) -> const T* {
      return first_key + i < a.keys ? k + (first_key + i) * a.k.strides[2] : nullptr;
    });
    copy_rows<kWidth, kKeys>(v_tiles + offset, a.width, v, [&](uint32_t i) -> const T* {
      return first_key + i < a.keys ? v + (first_key + i) * a.v.strides[2] : nullptr;
    });
  };
  if (steps != 0) {
    const T* const q = reinterpret_cast<const T*>(a.q.data);
    copy_rows<kWidth, kBlockRows>(q_tile, a.width, q, [&](uint32_t i) -> const T* {
      return block_row + i < a.rows ? q + problem.row(a, a.q, block_row + i) : nullptr;
    });
    copy_tile(0);
    commit_copies();
  }
  WarpSums<kWidth> warp;
  const auto take_tile = [&](uint32_t n, auto is_rest) {
    // The copies of this step arrive, and behind the barrier also those of the other threads. All
    // warps have ended the step before, whose half of the memory the next copies take.
    wait_for_copies<0>();
    __syncthreads();
    if (n + 1 < steps) {
      copy_tile(n + 1);
      commit_copies();
    }
    if (first_row >= a.rows) return;
    const uint32_t first_key = first_key_of(n), offset = n % 2 * kTileBytes;
    const SharedAddress q_rows = q_tile + (first_row - block_row) * kRowBytes<kWidth>;
    Scores<kWidth> scores;
    multiply_keys<T>(MatrixAt<kWidth>(q_rows, true), MatrixAt<kWidth>(k_tiles + offset, false),
                     scores);
    if (first_key + kKeys > least_keys(a, hidden(block_row), kBlockRows)) {
      hide_keys(a, hidden(first_row), first_key, scores);
    }
    float factors[2][2];
    weigh(warp, plan.slope, is_rest(), scores, factors);
    if constexpr (is_rest()) leave_rest<T>(scores);
    Weights<kWidth> weights;
    split<T>(scores, weights);
    add_values<T>(weights, MatrixAt<kWidth>(v_tiles + offset, true), factors, warp);
  };
  if (repeats != 0) take_tile(0, std::true_type());
  for (uint32_t n = repeats; n < steps; ++n) take_tile(n, std::false_type());
  const uint32_t first_stored = hidden(first_row);
  if (end_sums(warp)) {
    store_rows<T>(plan, Problem(a, hidden(blockIdx.y)), first_stored, warp);
  } else {
    for (uint32_t r = 0; r < kWarpRows && first_stored + r < a.rows; ++r) {
      compute_row<T>(plan, Problem(a, hidden(blockIdx.y)), first_stored + r);
    }
  }
}

float slope_of(const bp_sdpa_args& args) {
  return static_cast<float>(args.scale * 1.44269504088896340736);
}

bp_reason sdpa_mma_supports(const bp_sdpa_args& args) {
  const int64_t width = args.q->shape[3];
  if (args.mask != nullptr || args.bias != nullptr) return "there is a mask or a bias";
  if (args.window_left != 0 || args.window_right != 0) return "there is a window";
  if (args.softcap != 0 || args.sinks != nullptr) return "there is a soft cap or there are sinks";
  if (args.dropout_p != 0) return "there is dropout";
  if (width != args.v->shape[3]) return "the widths of keys and values differ";
  if (width < 16 || width > 128 || width % 16 != 0) {
    return "the width is not one of 16, 32, 48 and so on to 128";
  }
  if (element_count(*args.q) == 0 || element_count(*args.k) == 0) return "there are no elements";
  for (const bp_tensor* tensor : {args.q, args.k, args.v, static_cast<const bp_tensor*>(args.y)}) {
    if (!has_aligned_rows(*tensor)) return "a row is not dense, or not aligned to 16 bytes";
  }
  const float slope = slope_of(args);
  if (!(slope > 0) || !std::isnormal(slope)) return "the scale is not a positive f32";
  return attention_supports(args);
}

template <typename T, int kWidth>
bp_status launch_width(const MmaPlan& plan, dim3 blocks, Launch& launch) {
  constexpr size_t kRows = kBlockRows + 4 * kTileKeys<kWidth>;
  return run<sdpa_mma_kernel<T, kWidth>>(launch, blocks, kMmaThreads, kRows * kRowBytes<kWidth>,
                                         plan);
}

template <typename T>
bp_status launch_mma(const MmaPlan& plan, dim3 blocks, Launch& launch) {
  return plan.a.width <= 64 ? launch_width<T, 64>(plan, blocks, launch)
                            : launch_width<T, 128>(plan, blocks, launch);
}

bp_status sdpa_mma_launch(const bp_sdpa_args& args, Launch& launch) {
  if (const bp_reason reason = sdpa_mma_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("sdpa.mma: ") + reason);
  }
  MmaPlan plan;
  plan.a = attention_of(args);
  plan.y = view_of(args.y);
  plan.lse = view_of_rows(args.lse);
  plan.slope = slope_of(args);
  const dim3 blocks(blocks_for(plan.a.rows, kBlockRows),
                    static_cast<unsigned>(args.q->shape[0] * plan.a.key_heads));
  return args.q->dtype == BP_F16 ? launch_mma<Float16>(plan, blocks, launch)
                                 : launch_mma<BFloat16>(plan, blocks, launch);
}

constexpr bp_dtype kMmaDtypes[] = {BP_F16, BP_BF16};

constexpr bp_kernel sdpa_mma_row() {
  bp_kernel row = kernel_row("sdpa.mma", BP_OP_SDPA, {kMmaDtypes, 1});
  row.priority = 1;
  row.flags |= BP_KERNEL_TAKES_SCALAR;  // The seed of no dropout.
  row.numerics = &kTensorCoreNumerics;
  return row;
}

}  // namespace

constinit const bp_kernel kSdpaMma =
    make_kernel<bp_sdpa_args, sdpa_mma_launch, sdpa_mma_supports>(sdpa_mma_row());

}  // namespace bp::cuda
