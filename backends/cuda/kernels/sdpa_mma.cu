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
#include "backends/cuda/kernels/sdpa_forward.cuh"

namespace bp::cuda {
namespace {

// The keys of a tile, as many as the registers hold.
template <int kWidth>
constexpr uint32_t kTileKeys = kWidth > 64 ? 48 : 64;

template <int kWidth>
using Scores = WarpTile<kTileKeys<kWidth>>;

// For a row that sees so many keys, two parts of a weight are enough.
constexpr uint32_t kFewKeys = 48;

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
  // Step n takes tile n - repeats, and the first step takes the first tile in any case.
  const SeenKeys seen(a, block_row, kBlockRows);
  const uint32_t tiles = (seen.any_limit + kKeys - 1) / kKeys;
  const bool has_few = seen.all_limit < kFewKeys && tiles != 0;
  const uint32_t repeats = std::is_same_v<T, BFloat16> && has_few ? 1 : 0;
  const uint32_t steps = tiles + repeats;
  const auto first_key_of = [&](uint32_t n) { return n == 0 ? 0 : (n - repeats) * kKeys; };
  const auto copy_tile = [&](uint32_t n) {
    const uint32_t first_key = first_key_of(n), offset = n % 2 * kTileBytes;
    copy_keys<kWidth, kKeys, kMmaThreads, T>(k_tiles + offset, a, problem, a.k, first_key);
    copy_keys<kWidth, kKeys, kMmaThreads, T>(v_tiles + offset, a, problem, a.v, first_key);
  };
  if (steps != 0) {
    copy_rows<kWidth, kBlockRows, kMmaThreads, T>(q_tile, a, problem, a.q, block_row);
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
    multiply_rows<T>(MatrixAt<kWidth>(q_rows, true), MatrixAt<kWidth>(k_tiles + offset, false),
                     scores);
    if (!SeenKeys(a, hidden(block_row), kBlockRows).cover(first_key, kKeys)) {
      hide_keys(a, hidden(first_row), first_key, scores);
    }
    float factors[2][2];
    weigh(warp, plan.slope, is_rest(), scores, factors);
    if constexpr (is_rest()) leave_rest<T, kWidth>(scores);
    Weights<kWidth> weights;
    split<T, kWidth>(scores, weights);
    add_values<T>(weights, MatrixAt<kWidth>(v_tiles + offset, true), factors, warp);
  };
  if (repeats != 0) take_tile(0, std::true_type());
  for (uint32_t n = repeats; n < steps; ++n) take_tile(n, std::false_type());
  store_or_compute<T>(plan, hidden(first_row), warp);
}

bp_reason sdpa_mma_supports(const bp_sdpa_args& args) {
  // The first tile may have no key that a row with few keys sees.
  if (args.window_left != 0 || args.window_right != 0) return "there is a window";
  return tiles_support(args, {args.y});
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
  const MmaPlan plan = mma_plan_of(args);
  return args.q->dtype == BP_F16 ? launch_mma<Float16>(plan, row_blocks(plan.a), launch)
                                 : launch_mma<BFloat16>(plan, row_blocks(plan.a), launch);
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
