// sdpa of f16 and bf16 by tensor cores, with weights that are rounded to the dtype of v, as
// FlashAttention-2 has them (Dao 2023). sdpa_mma.cu has weights in two parts.
//
// A block has 128 rows, 32 for each of its 4 warps, and walks the keys that its rows see in tiles
// of 64. The next tile is copied to the other half of shared memory meanwhile. A warp keeps its
// scores, weights and sums in registers:
//
//   scores = q k^T    weights = 2^(slope * score - peak)    sums = sums * factor + weights v
//
// Precision. The declared numerics say that products have rounded factors. The total of the weights
// is that of the weights before they are rounded. The sums of a tile begin at 0, because tensor
// cores truncate, and an addition that rounds adds them to those of the tiles before.
//
// Values that are not finite are treated as in sdpa_mma.cu: a warp whose sums are not finite
// computes its rows again, a row at a time.
//
// Few rows. If the blocks of a call do not fill the device twice, each of them takes a part of the
// keys, and writes its sums to the workspace. A second kernel joins the parts (Dao and others 2023,
// flash-decoding). How many parts there are depends on the extents and on the device alone.
//
// Speed. On an H200 mma.sync reaches about 0.62 of the 790 TF/s that products reach, which is 490.
// A warp loads 80 matrices for 256 mma.sync, which takes 0.85 of the time of these. Exponentials
// take 0.3 of it, beside the products of the other warps. The expected share is 0.65 of the limit:
// 320 TF/s. A thread has 255 registers, and an SM two blocks; at widths above 64 four values go to
// local memory and back in each tile.
//
// The limit of few rows is the memory that has the keys and values, 4.3 TB/s: one warp of a block
// multiplies a tile of 32 KiB in 1.3 us, which is 6.5 TB/s for two blocks of each SM, so the
// expected share is 0.8.
#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_forward.cuh"

namespace bp::cuda {
namespace {

constexpr uint32_t kKeys = 64;  // Of a tile.

struct RoundedPlan {
  MmaPlan mma;
  // If there are several parts, each has part_keys keys, and its results lie in the workspace:
  // (problems, parts, rows), and for the sums also the width.
  uint32_t parts = 1, part_keys = 0;
  float *peaks = nullptr, *totals = nullptr, *sums = nullptr;

  // Returns the place of a row among the results of parts.
  __device__ __forceinline__ uint64_t place(uint32_t part, uint32_t row) const {
    return (uint64_t{blockIdx.y} * parts + part) * static_cast<uint64_t>(mma.a.rows) + row;
  }
};

// Writes the results of a part. All lanes of a row have its peak, and a part of its total.
template <int kWidth>
__device__ __forceinline__ void store_part(const RoundedPlan& plan, uint32_t first_row,
                                           const WarpSums<kWidth>& warp) {
  const Attention& a = plan.mma.a;
  BP_UNROLL
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t i = r / 2, h = r % 2, row = first_row + r * 8 + lane_row();
    float total = warp.totals[i][h];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    if (row >= a.rows) continue;
    const uint64_t place = plan.place(blockIdx.z, row);
    if (lane_column() == 0) {
      plan.peaks[place] = warp.peaks[i][h];
      plan.totals[place] = total;
    }
    BP_UNROLL
    for (uint32_t n = 0; n < kWidth / 8; ++n) {
      const uint32_t column = n * 8 + lane_column();
      if (column >= a.width) continue;
      plan.sums[place * a.width + column] = warp.sums[i][n][2 * h];
      plan.sums[place * a.width + column + 1] = warp.sums[i][n][2 * h + 1];
    }
  }
}

// Joins the parts of a row, by a warp. The grid has (groups of kMmaWarps rows, problems) blocks.
template <typename T>
__global__ void __launch_bounds__(kMmaThreads) join_parts_kernel(RoundedPlan plan) {
  constexpr uint32_t kColumns = 4;  // Of a lane.
  const Attention& a = plan.mma.a;
  const uint32_t row = blockIdx.x * kMmaWarps + threadIdx.x / kWarpSize;
  if (row >= a.rows) return;
  float peak = -infinity<float>();
  for (uint32_t part = 0; part < plan.parts; ++part) {
    peak = fmaxf(peak, plan.peaks[plan.place(part, row)]);
  }
  const float shift = peak == -infinity<float>() ? 0.0f : peak;
  float total = 0, sums[kColumns] = {}, check = 0;
  for (uint32_t part = 0; part < plan.parts; ++part) {
    const uint64_t place = plan.place(part, row);
    const float factor = exp2_fast(plan.peaks[place] - shift);
    total += factor * plan.totals[place];
    BP_UNROLL
    for (uint32_t c = 0; c < kColumns; ++c) {
      const uint32_t column = c * kWarpSize + tile_lane();
      if (column < a.width) sums[c] += factor * plan.sums[place * a.width + column];
    }
  }
  BP_UNROLL
  for (uint32_t c = 0; c < kColumns; ++c) check += (sums[c] + total) * 0.0f;
  const Problem problem(a, blockIdx.y);
  if (warp_reduce(check, Plus()) != 0) return compute_row<T>(plan.mma, problem, row);
  const float inverse = total == 0 ? 0.0f : 1.0f / total;
  T* const y = reinterpret_cast<T*>(plan.mma.y.data) + problem.row(a, plan.mma.y, row);
  BP_UNROLL
  for (uint32_t c = 0; c < kColumns; ++c) {
    const uint32_t column = c * kWarpSize + tile_lane();
    if (column < a.width) y[column] = narrow<T>(sums[c] * inverse);
  }
  if (plan.mma.lse.data == nullptr || tile_lane() != 0) return;
  float* const lse =
      reinterpret_cast<float*>(plan.mma.lse.data) + problem.row(a, plan.mma.lse, row);
  *lse = total == 0 ? -infinity<float>() : peak * kLogOf2 + log(total);
}

// The grid has (tiles of rows, problems, parts) blocks. The rows that see most keys come first.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMmaThreads, 2) sdpa_rounded_kernel(RoundedPlan plan) {
  constexpr uint32_t kTileBytes = kKeys * kRowBytes<kWidth>;
  const Attention& a = plan.mma.a;
  const Problem problem(a, blockIdx.y);
  const uint32_t block_row = (gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const uint32_t first_row = block_row + threadIdx.x / kWarpSize * kWarpRows;
  const SharedAddress q_tile = shared_address(dynamic_shared());
  const SharedAddress key_tiles = q_tile + kBlockRows * kRowBytes<kWidth>;  // k, v, and both again.
  const SeenKeys seen(a, block_row, kBlockRows);
  const auto copy_tile = [&](SharedAddress to, uint32_t first_key) {
    copy_keys<kWidth, kKeys, kMmaThreads, T>(to, a, problem, a.k, first_key);
    copy_keys<kWidth, kKeys, kMmaThreads, T>(to + kTileBytes, a, problem, a.v, first_key);
  };
  const auto tile_at = [&](uint32_t first_key) {
    return key_tiles + first_key / kKeys % 2 * (2 * kTileBytes);
  };
  uint32_t first_key = seen.any_begin / kKeys * kKeys, limit = seen.any_limit;
  if (plan.parts > 1) {
    const uint32_t begin = blockIdx.z * plan.part_keys, end = begin + plan.part_keys;
    first_key = first_key > begin ? first_key : begin;
    limit = limit < end ? limit : end;
  }
  if (first_key < limit) {
    copy_rows<kWidth, kBlockRows, kMmaThreads, T>(q_tile, a, problem, a.q, block_row);
    copy_tile(tile_at(first_key), first_key);
    commit_copies();
  }
  WarpSums<kWidth> warp;
  for (; first_key < limit; first_key += kKeys) {
    // The copies of this step arrive, and behind the barrier also those of the other threads. All
    // warps have ended the step before, whose half of the memory the next copies take.
    wait_for_copies<0>();
    __syncthreads();
    if (first_key + kKeys < limit) {
      copy_tile(tile_at(first_key + kKeys), first_key + kKeys);
      commit_copies();
    }
    if (first_row >= a.rows) continue;
    const SharedAddress q_rows = q_tile + (first_row - block_row) * kRowBytes<kWidth>;
    const SharedAddress tile = tile_at(first_key);
    WarpTile<kKeys> scores;
    multiply_rows<T>(MatrixAt<kWidth>(q_rows, true), MatrixAt<kWidth>(tile, false), scores);
    if (!SeenKeys(a, hidden(block_row), kBlockRows).cover(first_key, kKeys)) {
      hide_keys(a, hidden(first_row), first_key, scores);
    }
    float factors[2][2];
    weigh(warp, plan.mma.slope, false, scores, factors);
    WarpFactor<kKeys> weights;
    round_tile<T>(scores, weights);
    add_products<T>(weights, MatrixAt<kWidth>(tile + kTileBytes, true), warp.sums,
                    [&](float& sum, float product, uint32_t i, uint32_t h) {
                      sum = fmaf(sum, factors[i][h], product);
                    });
  }
  if (plan.parts > 1) return store_part(plan, hidden(first_row), warp);
  store_or_compute<T>(plan.mma, hidden(first_row), warp);
}

// How the keys of a call are divided, and where the results of parts lie in the workspace.
struct Parts {
  uint32_t count = 1, keys = 0;
  uint64_t totals = 0, sums = 0, size_bytes = 0;

  Parts(const Attention& a, const DeviceLimits& limits) {
    constexpr int64_t kLeastKeys = 4 * kKeys;  // So that a block has several tiles to copy ahead.
    const dim3 blocks = row_blocks(a);
    const int64_t all = std::max<int64_t>(1, int64_t{blocks.x} * blocks.y);
    const int64_t wanted = 2 * int64_t{limits.multiprocessor_count} / all;
    const int64_t parts = std::min(wanted, a.keys / kLeastKeys);
    if (parts < 2) return;
    keys = blocks_for(a.keys, parts * kKeys) * kKeys;
    count = blocks_for(a.keys, keys);
    const auto rows = static_cast<uint64_t>(a.batches * a.key_heads * a.rows) * count;
    totals = rounded_part(rows * sizeof(float));
    sums = 2 * totals;
    size_bytes = sums + rows * a.width * sizeof(float);
  }
};

RoundedPlan plan_of(const bp_sdpa_args& args, const Launch& launch) {
  RoundedPlan plan;
  plan.mma = mma_plan_of(args);
  const Parts parts(plan.mma.a, launch.limits());
  plan.parts = parts.count;
  plan.part_keys = parts.keys;
  if (parts.count == 1) return plan;
  std::byte* const memory = launch.workspace();
  plan.peaks = reinterpret_cast<float*>(memory);
  plan.totals = reinterpret_cast<float*>(memory + parts.totals);
  plan.sums = reinterpret_cast<float*>(memory + parts.sums);
  return plan;
}

template <typename T>
bp_status launch_rounded(const RoundedPlan& plan, Launch& launch) {
  constexpr size_t kRows = kBlockRows + 4 * kKeys;
  const Attention& a = plan.mma.a;
  dim3 blocks = row_blocks(a);
  blocks.z = plan.parts;
  const bp_status status = a.width <= 64
                               ? run<sdpa_rounded_kernel<T, 64>>(launch, blocks, kMmaThreads,
                                                                 kRows * kRowBytes<64>, plan)
                               : run<sdpa_rounded_kernel<T, 128>>(launch, blocks, kMmaThreads,
                                                                  kRows * kRowBytes<128>, plan);
  if (status != BP_OK || plan.parts == 1) return status;
  return run<join_parts_kernel<T>>(launch, dim3(blocks_for(a.rows, kMmaWarps), blocks.y),
                                   kMmaThreads, 0, plan);
}

struct RoundedKernel {
  static bp_reason supports(const bp_sdpa_args& args, bp_launch_flags flags, const Env& env) {
    if (const bp_reason reason = rounding_refusal(flags, env)) return reason;
    return tiles_support(args, {args.y});
  }
  static uint64_t workspace(const bp_sdpa_args& args, const Env& env) {
    return Parts(attention_of(args), env.limits()).size_bytes;
  }
  static bp_status launch(const bp_sdpa_args& args, Launch& launch) {
    if (const bp_reason reason = supports(args, launch.flags(), launch)) {
      return launch.refuse(BP_UNSUPPORTED, std::string("sdpa.mma_rounded: ") + reason);
    }
    const RoundedPlan plan = plan_of(args, launch);
    return args.q->dtype == BP_F16 ? launch_rounded<Float16>(plan, launch)
                                   : launch_rounded<BFloat16>(plan, launch);
  }
};

}  // namespace

constinit const bp_kernel kSdpaRoundedF16 = make_rounding_kernel<bp_sdpa_args, RoundedKernel>(
    "sdpa.mma_rounded_f16", BP_OP_SDPA, kMmaF16, &kTf32Numerics);
constinit const bp_kernel kSdpaRoundedBf16 = make_rounding_kernel<bp_sdpa_args, RoundedKernel>(
    "sdpa.mma_rounded_bf16", BP_OP_SDPA, kMmaBf16, &kBf16Numerics);

}  // namespace bp::cuda
