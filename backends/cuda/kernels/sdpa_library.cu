// sdpa of f16 and bf16 by cuDNN, with option attention=cudnn. cuDNN rounds weights to the dtype of
// v, as sdpa_mma_rounded.cu does.
//
// cuDNN reads every key of its tiles, also those that a row does not see, so one that is not finite
// spoils the row. A kernel behind it computes each row again that is not finite. A row whose values
// rightly are not finite is computed twice.
//
// cuDNN compiles a kernel for each shape when it meets the shape first. The eight plans of
// installed_test.cpp took 3 s.
//
// Speed. NVIDIA reports up to 600 TF/s for prefill in bf16 on an H200 (the folder
// benchmark/sdpa_benchmark_training of NVIDIA/cudnn-frontend), where mma.sync reaches 490 at most.
// The kernel behind it reads y once: 2 bytes for each element, at 4.3 TB/s. That is 1 % of the time
// of cuDNN if there are 1000 keys. Neither has run here: no GPU was at hand.
#include <array>
#include <memory>
#include <vector>

#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_forward.cuh"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

using Id = DnnAttentionTensor;

// Computes the rows again that are not finite, a warp for each row. The grid has (groups of
// kMmaWarps rows, problems) blocks.
template <typename T>
__global__ void __launch_bounds__(kMmaThreads) mend_rows_kernel(MmaPlan plan) {
  const Attention& a = plan.a;
  const uint32_t row = blockIdx.x * kMmaWarps + threadIdx.x / kWarpSize;
  if (row >= a.rows) return;
  const Problem problem(a, blockIdx.y);
  const T* const y = reinterpret_cast<const T*>(plan.y.data) + problem.row(a, plan.y, row);
  float check = 0;  // It becomes NaN if an element is not finite.
  for (uint32_t column = tile_lane() * kUnit; column < a.value_width; column += kWarpSize * kUnit) {
    const auto unit = *reinterpret_cast<const Vec<T, kUnit>*>(y + column);
    BP_UNROLL
    for (uint32_t i = 0; i < kUnit; ++i) check += widen(unit.at[i]) * 0.0f;
  }
  if (warp_reduce(check, Plus()) == 0) return;
  __syncwarp();  // All lanes have read the row before one writes to it.
  compute_row<T>(plan, problem, row);
}

std::array<int64_t, 4> strides_of(const bp_tensor& t) {
  return {t.strides[0], t.strides[1], t.strides[2], t.strides[3]};
}

DnnAttention problem_of(const bp_sdpa_args& args) {
  const KeyBand band = key_band(args);
  const int64_t diagonal =
      args.causal == BP_SDPA_CAUSAL_TOP_LEFT ? 0 : band.keys - args.q->shape[2];
  DnnAttention p;
  p.dtype = args.q->dtype;
  p.batches = args.q->shape[0];
  p.heads = args.q->shape[1];
  p.key_heads = args.k->shape[1];
  p.queries = args.q->shape[2];
  p.keys = args.k->shape[2];
  p.width = args.q->shape[3];
  p.q = strides_of(*args.q);
  p.k = strides_of(*args.k);
  p.v = strides_of(*args.v);
  p.y = strides_of(*args.y);
  p.has_lse = args.lse != nullptr;
  p.is_bound_right = band.end < p.keys;
  p.is_bound_left = band.begin > -p.queries;
  p.is_bottom_right = p.is_bound_right && args.causal != BP_SDPA_CAUSAL_TOP_LEFT;
  p.has_right_shift = p.is_bound_right && band.end != diagonal + 1;
  return p;
}

// Returns why cuDNN does not serve a call, whatever the device is, or NULL.
bp_reason refuse_call(const bp_sdpa_args& args) {
  constexpr int64_t kLeastQueries = 32;  // Half of the smallest tile of cuDNN.
  if (const bp_reason reason = tiles_support(args, {args.y})) return reason;
  const int64_t queries = args.q->shape[2], keys = args.k->shape[2];
  if (queries < kLeastQueries) return "there are fewer than 32 queries";
  // cuDNN compares the places of keys in f32, which counts so far.
  constexpr int64_t kMost = int64_t{1} << 23;
  if (queries > kMost || keys > kMost) return "there are more than 2^23 queries or keys";
  if (has_band(args) && queries > keys) return "a band has more queries than keys";
  if (args.lse != nullptr && !is_contiguous(*args.lse)) return "lse has gaps";
  return nullptr;
}

// Returns the choice of cuDNN, or NULL with the reason.
std::shared_ptr<const DnnPlan> find_plan(const bp_sdpa_args& args, const Env& env,
                                         bp_reason& reason) {
  reason = refuse_call(args);
  if (reason != nullptr) return nullptr;
  DnnEngine* const engine = env.engines().dnn(env.device());
  if (engine == nullptr) {
    reason = "cuDNN is missing; the log says why";
  } else if (!engine->has_attention()) {
    reason = "cuDNN is older than 9.15";
  } else if (auto plan = engine->find(problem_of(args))) {
    return plan;
  } else {
    reason = "cuDNN has no deterministic engine for this shape";
  }
  return nullptr;
}

bp_status launch_plan(const bp_sdpa_args& args, const DnnPlan& plan, Launch& launch) {
  const KeyBand band = key_band(args);
  const DnnAttention p = problem_of(args);
  const auto scale = static_cast<float>(args.scale);
  const float hidden_score = -infinity<float>(), left_shift = static_cast<float>(1 - band.begin);
  const auto queries = static_cast<int32_t>(p.queries), keys = static_cast<int32_t>(p.keys);
  const auto right_shift =
      static_cast<int32_t>(band.end - 1 - (p.is_bottom_right ? p.keys - p.queries : 0));
  std::vector<DnnAddress> at{{Id::kQ, data<std::byte>(*args.q)},
                             {Id::kK, data<std::byte>(*args.k)},
                             {Id::kV, data<std::byte>(*args.v)},
                             {Id::kY, data<std::byte>(*args.y)},
                             {Id::kScale, &scale}};
  if (p.has_lse) at.emplace_back(Id::kLse, data<std::byte>(*args.lse));
  if (p.is_bound_right || p.is_bound_left) at.emplace_back(Id::kHiddenScore, &hidden_score);
  if (p.is_bottom_right) {
    at.emplace_back(Id::kKeys, &keys);
    at.emplace_back(Id::kQueries, &queries);
  }
  if (p.has_right_shift) at.emplace_back(Id::kRightShift, &right_shift);
  if (p.is_bound_left) at.emplace_back(Id::kLeftShift, &left_shift);
  const bp_status status = run_dnn(plan, at, launch);
  if (status != BP_OK) return status;
  const MmaPlan rows = mma_plan_of(args);
  const dim3 blocks(blocks_for(rows.a.rows, kMmaWarps),
                    static_cast<unsigned>(rows.a.batches * rows.a.key_heads));
  return args.q->dtype == BP_F16
             ? run<mend_rows_kernel<Float16>>(launch, blocks, kMmaThreads, 0, rows)
             : run<mend_rows_kernel<BFloat16>>(launch, blocks, kMmaThreads, 0, rows);
}

struct LibraryAttention {
  static bp_reason supports(const bp_sdpa_args& args, bp_launch_flags flags, const Env& env) {
    if (!env.options().has_library_attention) return "option attention is not \"cudnn\"";
    if (const bp_reason reason = rounding_refusal(flags, env)) return reason;
    bp_reason reason = nullptr;
    find_plan(args, env, reason);
    return reason;
  }
  static uint64_t workspace(const bp_sdpa_args& args, const Env& env) {
    bp_reason reason = nullptr;
    const auto plan = find_plan(args, env, reason);
    return plan == nullptr ? 0 : plan->workspace_size_bytes();
  }
  static bp_status launch(const bp_sdpa_args& args, Launch& launch) {
    bp_reason reason = nullptr;
    const auto plan = find_plan(args, launch, reason);
    if (plan == nullptr) return launch.refuse(BP_UNSUPPORTED, reason);
    check_workspace(launch.workspace_ref(), plan->workspace_size_bytes(), "launch");
    return launch_plan(args, *plan, launch);
  }
};

// The choice is kept by shape, so there is nothing that a plan would keep.
constexpr bp_kernel library_row(const char* name, DtypeRows dtypes, const bp_numerics* numerics) {
  bp_kernel row = kernel_row(name, BP_OP_SDPA, dtypes, BP_KERNEL_TAKES_SCALAR);
  row.numerics = numerics;
  row.priority = 3;
  row = make_kernel<bp_sdpa_args, LibraryAttention::launch, nullptr,
                    library_workspace<bp_sdpa_args, LibraryAttention>>(row);
  row.supports = library_supports<bp_sdpa_args, LibraryAttention>;
  return row;
}

}  // namespace

constinit const bp_kernel kSdpaLibraryF16 = library_row("sdpa.cudnn_f16", kMmaF16, &kTf32Numerics);
constinit const bp_kernel kSdpaLibraryBf16 =
    library_row("sdpa.cudnn_bf16", kMmaBf16, &kBf16Numerics);

}  // namespace bp::cuda
