// adaptive_max_pool. A thread computes one element of y, and reads its window in row-major order.
#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backplane/shell/sampling.hpp"

namespace bp::cuda {
namespace {

struct AdaptiveMaxPlan {
  Grid x, y, indices;  // `indices` has no address if not wanted.
  bool has_indices = false, is_i64 = false;

  __host__ __device__ Bins bins(int axis) const { return {x.extent[axis], y.extent[axis]}; }
};

template <typename T>
__host__ __device__ __forceinline__ void pool_element(const AdaptiveMaxPlan& p, int64_t index) {
  const GridAt output = position(p.y, index);
  const int64_t plane = index / p.y.size();
  const T* const x = reinterpret_cast<const T*>(p.x.address);
  int64_t begin[kGridAxes], end[kGridAxes];
  for (int i = 0; i < kGridAxes; ++i) {
    begin[i] = p.bins(i).begin(output.at[i]);
    end[i] = p.bins(i).end(output.at[i]);
  }
  Compute<T> best{};
  int64_t best_index = -1;
  GridAt at;
  for (at.at[0] = begin[0]; at.at[0] < end[0]; ++at.at[0]) {
    for (at.at[1] = begin[1]; at.at[1] < end[1]; ++at.at[1]) {
      for (at.at[2] = begin[2]; at.at[2] < end[2]; ++at.at[2]) {
        const Compute<T> value = widen(x[offset(p.x, plane / p.x.inner, plane % p.x.inner, at)]);
        if (best_index >= 0 && !is_larger(best, value)) continue;
        best = value;
        best_index = (at.at[0] * p.x.extent[1] + at.at[1]) * p.x.extent[2] + at.at[2];
      }
    }
  }
  reinterpret_cast<T*>(p.y.address)[offset(p.y, index)] = narrow<T>(best);
  if (p.has_indices) {
    store_index(p.indices.address, offset(p.indices, index), p.is_i64, best_index);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    adaptive_max_kernel(AdaptiveMaxPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { pool_element<T>(p, i); });
}

bp_reason pool_supports(const bp_adaptive_max_pool_args& args) {
  if (const bp_reason reason = sampling_reason(*args.x, *args.y)) return reason;
  return index_reason(args.indices, element_count(args.x->ndim - 2, args.x->shape + 2));
}

bp_status pool_launch(const bp_adaptive_max_pool_args& args, Launch& launch) {
  AdaptiveMaxPlan plan;
  plan.x = grid_of(*args.x);
  plan.y = grid_of(*args.y);
  plan.has_indices = args.indices != nullptr;
  if (plan.has_indices) {
    plan.indices = grid_of(*args.indices);
    plan.is_i64 = is_i64_index(args.indices->dtype);
  }
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return run_elements<adaptive_max_kernel<T>>(launch, plan.y.count(), plan);
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

constinit const bp_kernel kAdaptiveMaxPool =
    make_kernel<bp_adaptive_max_pool_args, pool_launch, pool_supports>(
        kernel_row("adaptive_max_pool", BP_OP_ADAPTIVE_MAX_POOL, {kDtypes, 2}));

}  // namespace bp::cuda
