// sdpa_backward of f16 and bf16 by tensor cores, after FlashAttention-2 (Dao 2023).
//
//   deltas    of each row, and the shifts that make scores weights; 16 bytes at a time
//   keys      a block has 128 keys and walks the rows that see them, 64 at a time: grad_k, grad_v
//   rows      a block has 128 rows and walks the keys that they see: grad_q
//
// Factors of a product stay in registers. A warp computes the transposed scores k q^T of 32 keys,
// whose results have the layout of a left factor:
//
//   weights^T = 2^(slope * k q^T + shift)                   grad_v = weights^T grad_y
//   s^T       = weights^T * (v grad_y^T - delta)            grad_k = scale * s^T q
//
// The sums of one gradient for 32 keys take 128 registers of a thread, so two warps share 32 keys:
// the first one computes weights^T and grad_v, and gives its weights to the second one, which
// computes the rest. The second warp is one tile of rows behind with s^T, so that a step needs one
// barrier, and one of the two multiplies while the other one computes exponentials.
//
// Precision. Weights and gradients of scores are rounded to the dtype of q before they are
// multiplied, which the declared numerics say. Sums are f32 in a fixed order; no two blocks write
// the same element.
//
// Values that are not finite. A warp whose sums are not finite marks its 32 keys or rows, and the
// plain kernels compute the marked tiles again. They also run, and end at once, if there is none.
//
// Speed. Seven products of (rows, keys) by the width, where the usual count has five. On an H200
// mma.sync reaches about 0.62 of the 790 TF/s that products reach, which is 490. So the limit is
// 350 TF/s by the usual count. A warp loads 80 matrices for 256 mma.sync, which takes 0.85 of the
// time of these, and exponentials take 0.15. The expected share is 0.7 of the limit: 250 TF/s. One
// block of 8 warps with 255 registers occupies an SM. At widths above 64 up to ten values of a
// thread go to local memory and back in each tile, beside 256 mma.sync.
#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_backward_keys.cuh"

namespace bp::cuda {
namespace {

// ---- The numbers of rows ------------------------------------------------------------------------

// Computes the numbers of a row by kWidth / 8 lanes. The grid has (tiles of rows, problems) blocks.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMmaThreads) row_numbers_kernel(MmaBackwardPlan plan) {
  constexpr uint32_t kLanes = kWidth / kUnit;
  const Attention& a = plan.b.a;
  const Problem problem(a, blockIdx.y);
  const uint32_t row = blockIdx.x * (kMmaThreads / kLanes) + threadIdx.x / kLanes;
  const uint32_t column = threadIdx.x % kLanes * kUnit;
  const bool is_there = row < a.rows;
  float delta = 0;
  if (is_there && column < a.width) {
    const auto at = [&](const View4& view) {
      return *reinterpret_cast<const Vec<T, kUnit>*>(reinterpret_cast<const T*>(view.data) +
                                                     problem.row(a, view, row) + column);
    };
    const Vec<T, kUnit> g = at(plan.b.grad_y), y = at(plan.b.y);
    BP_UNROLL
    for (uint32_t i = 0; i < kUnit; ++i) delta += widen(g.at[i]) * widen(y.at[i]);
  }
  BP_UNROLL
  for (uint32_t mask = kLanes / 2; mask > 0; mask /= 2) {
    delta += __shfl_xor_sync(kAllLanes, delta, static_cast<int>(mask));
  }
  if (row >= plan.stride || column != 0) return;
  float shift = -infinity<float>();
  if (is_there) {
    const float lse =
        reinterpret_cast<const float*>(plan.b.lse.data)[problem.row(a, plan.b.lse, row)];
    // A row has an lse of -inf if it sees no key, or if all its scores are -inf.
    if (lse != -infinity<float>()) shift = kWeightBits<T> - lse * static_cast<float>(kLog2OfE);
  }
  const uint64_t place = uint64_t{blockIdx.y} * plan.stride + row;
  plan.shifts[place] = shift;
  plan.deltas[place] = delta;
}

// ---- Rows ---------------------------------------------------------------------------------------

// The keys of a tile, as many as the registers hold.
template <int kWidth>
constexpr uint32_t kWalkedKeys = kWidth > 64 ? 48 : 64;

// A warp of a block of rows: its first row, and the sums of grad_q.
template <typename T, int kWidth>
struct RowWarp {
  static constexpr uint32_t kKeys = kWalkedKeys<kWidth>;
  const MmaBackwardPlan& plan;
  const uint32_t first_row;
  GradientScale<T> scale;
  float sums[2][kWidth / 8][4] = {};

  // Adds what a tile of keys gives. `left` is where the rows of the warp lie in the tile of q, and
  // `right` is the tile of keys.
  __device__ __forceinline__ void add(SharedAddress left, SharedAddress right, uint32_t first_key,
                                      bool covers) {
    WarpTile<kKeys> tile;
    multiply_rows<T>(MatrixAt<kWidth>(left, true), MatrixAt<kWidth>(right, false), tile);
    if (!covers) hide_keys(plan.b.a, first_row, first_key, tile);
    // The numbers of the rows are loaded for each tile, because the registers do not suffice.
    const uint64_t first = uint64_t{blockIdx.y} * plan.stride + first_row + lane_row();
    const float *const shifts = plan.shifts + first, *const deltas = plan.deltas + first;
    const auto place = [](uint32_t i, uint32_t e) { return i * 16 + e / 2 * 8; };
    weigh(
        plan.slope, [&](uint32_t i, uint32_t, uint32_t e) { return shifts[place(i, e)]; }, tile);
    WarpFactor<kKeys> factor;
    round_tile<T>(tile, factor);
    tile = {};
    multiply_rows<T>(MatrixAt<kWidth>(left + kBlockRows * kRowBytes<kWidth>, true),
                     MatrixAt<kWidth>(right + kKeys * kRowBytes<kWidth>, false), tile);
    BP_UNROLL
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
      finish_gradients<T>(
          factor.at[n % 2][n / 2],
          [&](uint32_t i, uint32_t, uint32_t e) { return deltas[place(i, e)]; }, n % 2, n / 2,
          tile);
    }
    scale.apply(tile, sums);
    round_tile<T>(tile, factor);
    add_products<T>(factor, MatrixAt<kWidth>(right, true), sums,
                    [](float& sum, float product, uint32_t, uint32_t) { sum += product; });
  }
  __device__ __forceinline__ void store(const Problem& problem) const {
    const Attention& a = plan.b.a;
    if (first_row >= a.rows) return;
    const float unit = static_cast<float>(a.scale) * scale.unit();
    BP_UNROLL
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t row = first_row + r * 8 + lane_row();
      if (row >= a.rows) continue;
      store_row(reinterpret_cast<T*>(plan.b.grad_q.data) + problem.row(a, plan.b.grad_q, row),
                a.width, unit, sums, r / 2, r % 2);
    }
    mark_tile(plan.grad_q_marks, a.rows, first_row, sums);
  }
};

// The grid has (tiles of rows, problems) blocks. The rows that see most keys come first.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMmaThreads, 2) row_gradients_kernel(MmaBackwardPlan plan) {
  constexpr uint32_t kKeys = kWalkedKeys<kWidth>, kKeyBytes = kKeys * kRowBytes<kWidth>;
  const Attention& a = plan.b.a;
  const Problem problem(a, blockIdx.y);
  const uint32_t block_row = (gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const uint32_t first_row = block_row + threadIdx.x / kWarpSize * kWarpRows;
  const SharedAddress row_tiles = shared_address(dynamic_shared());  // q, then grad_y.
  const SharedAddress key_tiles = row_tiles + 2 * kBlockRows * kRowBytes<kWidth>;  // k, v, twice.
  const SeenKeys seen(a, block_row, kBlockRows);
  const uint32_t begin = seen.any_begin / kKeys * kKeys;
  const auto tile_at = [&](uint32_t first_key) {
    return key_tiles + (first_key - begin) / kKeys % 2 * (2 * kKeyBytes);
  };
  const auto copy_tile = [&](uint32_t first_key) {
    const SharedAddress to = tile_at(first_key);
    copy_keys<kWidth, kKeys, kMmaThreads, T>(to, a, problem, a.k, first_key);
    copy_keys<kWidth, kKeys, kMmaThreads, T>(to + kKeyBytes, a, problem, a.v, first_key);
  };
  copy_rows<kWidth, kBlockRows, kMmaThreads, T>(row_tiles, a, problem, a.q, block_row);
  copy_rows<kWidth, kBlockRows, kMmaThreads, T>(row_tiles + kBlockRows * kRowBytes<kWidth>, a,
                                                problem, plan.b.grad_y, block_row);
  if (begin < seen.any_limit) copy_tile(begin);
  commit_copies();
  RowWarp<T, kWidth> warp{plan, first_row, {}};
  for (uint32_t first_key = begin; first_key < seen.any_limit; first_key += kKeys) {
    // The copies of this step arrive, and behind the barrier also those of the other threads. All
    // warps have ended the step before, whose half of the memory the next copies take.
    wait_for_copies<0>();
    __syncthreads();
    if (first_key + kKeys < seen.any_limit) copy_tile(first_key + kKeys);
    commit_copies();
    if (first_row >= a.rows) continue;
    warp.add(row_tiles + (first_row - block_row) * kRowBytes<kWidth>, tile_at(first_key), first_key,
             seen.cover(first_key, kKeys));
  }
  wait_for_copies<0>();
  warp.store(problem);
}

// ---- Launch -------------------------------------------------------------------------------------

// The parts of the workspace, in bytes from its begin.
struct Parts {
  uint64_t shifts = 0, deltas, grad_q_marks, grad_k_marks, grad_v_marks, size_bytes;
  uint32_t stride;

  explicit Parts(const Attention& a) {
    const auto problems = static_cast<uint64_t>(a.batches * a.key_heads);
    stride = blocks_for(a.rows, kBlockRows) * kBlockRows;
    deltas = shifts + rounded_part(problems * stride * sizeof(float));
    grad_q_marks = deltas + rounded_part(problems * stride * sizeof(float));
    grad_k_marks = grad_q_marks + rounded_part(problems * blocks_for(a.rows, kTileSide));
    grad_v_marks = grad_k_marks + rounded_part(problems * blocks_for(a.keys, kTileSide));
    size_bytes = grad_v_marks + rounded_part(problems * blocks_for(a.keys, kTileSide));
  }
};

MmaBackwardPlan plan_of(const bp_sdpa_backward_args& args, const Launch& launch) {
  MmaBackwardPlan plan;
  plan.b = backward_plan_of(args);
  const Parts parts(plan.b.a);
  std::byte* const memory = launch.workspace();
  plan.shifts = reinterpret_cast<float*>(memory + parts.shifts);
  plan.deltas = reinterpret_cast<float*>(memory + parts.deltas);
  plan.grad_q_marks = reinterpret_cast<uint8_t*>(memory + parts.grad_q_marks);
  plan.grad_k_marks = reinterpret_cast<uint8_t*>(memory + parts.grad_k_marks);
  plan.grad_v_marks = reinterpret_cast<uint8_t*>(memory + parts.grad_v_marks);
  plan.stride = parts.stride;
  plan.slope = slope_of(args);
  plan.b.deltas = plan.deltas;
  plan.b.delta_stride = parts.stride;
  plan.b.grad_q_marks = plan.grad_q_marks;
  plan.b.grad_k_marks = plan.grad_k_marks;
  plan.b.grad_v_marks = plan.grad_v_marks;
  return plan;
}

template <typename T, int kWidth>
bp_status launch_width(const MmaBackwardPlan& plan, Launch& launch) {
  const Attention& a = plan.b.a;
  const auto problems = static_cast<unsigned>(a.batches * a.key_heads);
  constexpr uint32_t kRowsAtOnce = kMmaThreads / (kWidth / kUnit);
  bp_status status = run<row_numbers_kernel<T, kWidth>>(
      launch, dim3(blocks_for(plan.stride, kRowsAtOnce), problems), kMmaThreads, 0, plan);
  const bool has_key_gradients = plan.b.grad_k.data != nullptr || plan.b.grad_v.data != nullptr;
  if (status == BP_OK && has_key_gradients) {
    status =
        run<key_gradients_kernel<T, kWidth>>(launch, dim3(blocks_for(a.keys, kBlockKeys), problems),
                                             kKeyThreads, KeyMemory<kWidth>::kBytes, plan);
  }
  if (status != BP_OK) return status;
  constexpr size_t kRows = 2 * kBlockRows + 4 * kWalkedKeys<kWidth>;
  return run<row_gradients_kernel<T, kWidth>>(launch,
                                              dim3(blocks_for(a.rows, kBlockRows), problems),
                                              kMmaThreads, kRows * kRowBytes<kWidth>, plan);
}

template <typename T>
bp_status launch_gradients(const MmaBackwardPlan& plan, Launch& launch) {
  return plan.b.a.width <= 64 ? launch_width<T, 64>(plan, launch)
                              : launch_width<T, 128>(plan, launch);
}

struct MmaKernel {
  static bp_reason supports(const bp_sdpa_backward_args& args, bp_launch_flags flags,
                            const Env& env) {
    if (const bp_reason reason = rounding_refusal(flags, env)) return reason;
    const bool is_narrow = args.q->shape[3] <= 64;
    const uint32_t shared_bytes = is_narrow ? KeyMemory<64>::kBytes : KeyMemory<128>::kBytes;
    if (static_cast<int64_t>(shared_bytes) > env.limits().max_shared_bytes_per_block) {
      return "a block of the device has too little shared memory";
    }
    return tiles_support(args, {args.grad_y, args.y, args.grad_q, args.grad_k, args.grad_v});
  }
  static uint64_t workspace(const bp_sdpa_backward_args& args, const Env&) {
    return Parts(attention_of(args)).size_bytes;
  }
  static bp_status launch(const bp_sdpa_backward_args& args, Launch& launch) {
    if (const bp_reason reason = supports(args, launch.flags(), launch)) {
      return launch.refuse(BP_UNSUPPORTED, std::string("sdpa_backward.mma: ") + reason);
    }
    const MmaBackwardPlan plan = plan_of(args, launch);
    const bp_status status = args.q->dtype == BP_F16 ? launch_gradients<Float16>(plan, launch)
                                                     : launch_gradients<BFloat16>(plan, launch);
    return status == BP_OK ? launch_plain_gradients(plan.b, args.q->dtype, launch) : status;
  }
};

}  // namespace

constinit const bp_kernel kSdpaBackwardMmaF16 =
    make_rounding_kernel<bp_sdpa_backward_args, MmaKernel>(
        "sdpa_backward.mma_f16", BP_OP_SDPA_BACKWARD, kMmaF16, &kTf32Numerics);
constinit const bp_kernel kSdpaBackwardMmaBf16 =
    make_rounding_kernel<bp_sdpa_backward_args, MmaKernel>(
        "sdpa_backward.mma_bf16", BP_OP_SDPA_BACKWARD, kMmaBf16, &kBf16Numerics);

}  // namespace bp::cuda
