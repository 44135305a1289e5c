// sdpa, for tensors of every layout (sdpa_rows.cuh).
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/sdpa_rows.cuh"

namespace bp::cuda {
namespace {

struct ForwardPlan {
  Attention a;
  AttentionResults results;
};

// The grid has (tiles of rows, problems, passes over the columns of v) blocks.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kTileThreads, 2) sdpa_kernel(ForwardPlan plan) {
  const Problem problem(plan.a, blockIdx.y);
  attend_tile<T, kColumns>(plan.a, plan.results, problem, blockIdx.x * kTileSide,
                           [&](const View4& view, uint32_t key) {
                             return reinterpret_cast<const T*>(view.data) + problem.key(view, key);
                           });
}

bp_status sdpa_launch(const bp_sdpa_args& args, Launch& launch) {
  ForwardPlan plan;
  plan.a = attention_of(args);
  plan.results = {view_of(args.y), view_of_rows(args.lse)};
  const auto problems = static_cast<unsigned>(args.q->shape[0] * plan.a.key_heads);
  return with_float(args.q->dtype, [&]<typename T>(T) {
    return with_columns(plan.a.value_width, [&](auto columns, uint32_t passes) {
      const dim3 blocks(blocks_for(plan.a.rows, kTileSide), problems, passes);
      return run<sdpa_kernel<T, columns()>>(
          launch, blocks, kTileThreads,
          tiles_size_bytes<Compute<T>>(columns() * static_cast<uint32_t>(kWarpSize)), plan);
    });
  });
}

}  // namespace

constinit const bp_kernel kSdpa =
    make_kernel<bp_sdpa_args, sdpa_launch, attention_supports<bp_sdpa_args>>(
        kernel_row("sdpa", BP_OP_SDPA, kFloatDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::cuda
