// kv_cache_append. Where slots repeat, the last token writes the row: a launch finds the last token
// of each row that is named. It is the largest one, which does not depend on the order of threads.
//
// If the rows of both tensors are dense, a thread moves 16 bytes at once.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/movement.hpp"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {
namespace {

// The rows of x are tokens, and those of y are the rows of all blocks.
struct AppendPlan {
  RowTensor x, y, slots;
  Bounds bounds;
  uint32_t tokens = 0, width = 0;  // The elements of a row.
  uint32_t* last = nullptr;        // The last token of each row of y, and one. Only named ones.
  Reporter reporter{};

  // Returns the row that a token names, or -1.
  template <typename Index>
  __device__ __forceinline__ int64_t row(uint32_t token) const {
    const Index slot = *slots.row<Index>(token);
    if (slot < 0) return -1;
    const int64_t acting = bounds.acting(slot);
    return bounds.contains(acting) ? acting : -1;
  }
};

template <typename Index>
__global__ void __launch_bounds__(kBlockThreads) clear_last_kernel(AppendPlan plan) {
  const uint32_t token = blockIdx.x * kBlockThreads + threadIdx.x;
  if (token >= plan.tokens) return;
  const Index* const place = plan.slots.row<Index>(token);
  const int64_t row = plan.row<Index>(token);
  if (row >= 0) {
    store_same(plan.last + row, 0u);  // Several tokens may have the row.
  } else if (*place >= 0) {
    report(plan.reporter, *place, place);
  }
}

template <typename Index>
__global__ void __launch_bounds__(kBlockThreads) find_last_kernel(AppendPlan plan) {
  const uint32_t token = blockIdx.x * kBlockThreads + threadIdx.x;
  if (token >= plan.tokens) return;
  const int64_t row = plan.row<Index>(token);
  if (row >= 0) atomicMax(plan.last + row, token + 1);
}

template <typename T, typename Index, int kVector>
__global__ void __launch_bounds__(kBlockThreads) append_kernel(AppendPlan plan) {
  const uint32_t units = plan.width / kVector;
  const uint32_t at = blockIdx.x * kBlockThreads + threadIdx.x;
  if (at >= plan.tokens * units) return;
  const uint32_t token = at / units, i = at % units * kVector;
  const int64_t row = plan.row<Index>(token);
  if (row < 0 || plan.last[row] != token + 1) return;
  plan.y.store(plan.y.row<T>(static_cast<uint32_t>(row)), i,
               plan.x.load<kVector>(plan.x.row<T>(token), i));
}

AppendPlan plan_of(const bp_kv_cache_append_args& args) {
  AppendPlan plan;
  plan.x = row_tensor(*args.x, last_axes(args.x->ndim, 2));
  plan.y = row_tensor(*args.y, last_axes(4, 2));
  plan.slots = rows_only(*args.slots);
  plan.bounds = {args.y->shape[0] * args.y->shape[1], args.bounds};
  plan.tokens = static_cast<uint32_t>(element_count(*args.slots));
  plan.width = static_cast<uint32_t>(args.y->shape[2] * args.y->shape[3]);
  return plan;
}

template <typename Index>
bp_status append_rows(const AppendPlan& plan, int64_t size_bytes, Launch& launch) {
  const unsigned blocks = blocks_for(plan.tokens, kBlockThreads);
  bp_status status = run<clear_last_kernel<Index>>(launch, blocks, kBlockThreads, 0, plan);
  if (status != BP_OK || plan.width == 0) return status;
  status = run<find_last_kernel<Index>>(launch, blocks, kBlockThreads, 0, plan);
  if (status != BP_OK) return status;
  return with_width(size_bytes, [&]<typename T>(T) {
    constexpr int kVector = kLanes<T>;
    const bool has_vectors = plan.x.has_vectors && plan.y.has_vectors && plan.width % kVector == 0;
    const int64_t units = int64_t{plan.tokens} * (plan.width / (has_vectors ? kVector : 1));
    const unsigned moving = blocks_for(units, kBlockThreads);
    return has_vectors
               ? run<append_kernel<T, Index, kVector>>(launch, moving, kBlockThreads, 0, plan)
               : run<append_kernel<T, Index, 1>>(launch, moving, kBlockThreads, 0, plan);
  });
}

bp_status append_launch(const bp_kv_cache_append_args& args, Launch& launch) {
  const bp_tensor &y = *args.y, &cache = *args.cache;
  const int64_t size_bytes = dtype_size_bytes(y.dtype);
  if (data<std::byte>(y) != data<std::byte>(cache)) {
    const Loop loop = make_loop(y.ndim, y.shape, {operand(&y), operand(&cache)});
    const bp_status status = submit_copy(launch, loop, size_bytes);
    if (status != BP_OK) return status;
  }
  AppendPlan plan = plan_of(args);
  if (plan.tokens == 0) return BP_OK;
  plan.last = launch.workspace<uint32_t>();
  plan.reporter = launch.reporter(*args.slots, "slots", plan.bounds.extent);
  return is_i64_index(args.slots->dtype) ? append_rows<int64_t>(plan, size_bytes, launch)
                                         : append_rows<int32_t>(plan, size_bytes, launch);
}

uint64_t append_workspace(const bp_kv_cache_append_args& args, const Env&) {
  return static_cast<uint64_t>(args.y->shape[0] * args.y->shape[1]) * sizeof(uint32_t);
}

bp_reason append_supports(const bp_kv_cache_append_args& args) {
  if (element_count(*args.x) > kMaxLaunchElements) return "x has more than 2^30 elements";
  return too_many_rows(*args.y, last_axes(4, 2));
}

constexpr auto kDtypes = with_indices(kAnyDtypes);

}  // namespace

constinit const bp_kernel kKvCacheAppend =
    make_kernel<bp_kv_cache_append_args, append_launch, append_supports, append_workspace>(
        kernel_row("kv_cache_append", BP_OP_KV_CACHE_APPEND, {kDtypes, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::cuda
