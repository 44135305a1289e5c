// adaptive_avg_pool and its gradient. A thread computes one element of y, or one element of grad_x
// from the windows that it lies in.
#include <algorithm>

#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backplane/shell/sampling.hpp"

namespace bp::cuda {
namespace {

struct AdaptivePlan {
  Grid from, to;  // x and y, or in the gradient grad_y and grad_x.
  bool is_backward = false;

  // The elements of `from` that an element of `to` consists of, along one axis.
  __host__ __device__ Bins bins(int axis) const { return {from.extent[axis], to.extent[axis]}; }
  // The windows, whose sizes divide.
  __host__ __device__ Bins windows(int axis) const {
    return is_backward ? Bins{to.extent[axis], from.extent[axis]} : bins(axis);
  }
};

// Returns the number of elements of x in the window of an output, which may be 0.
__host__ __device__ __forceinline__ int64_t window_size(const AdaptivePlan& p,
                                                        const GridAt& output) {
  int64_t size = 1;
  for (int i = 0; i < kGridAxes; ++i) size *= p.windows(i).size(output.at[i]);
  return size;
}

template <typename T>
__host__ __device__ __forceinline__ void adaptive_element(const AdaptivePlan& p, int64_t index) {
  using C = Compute<T>;
  const GridAt result = position(p.to, index);
  const int64_t plane = index / p.to.size();
  const T* const from = reinterpret_cast<const T*>(p.from.address);
  int64_t begin[kGridAxes], end[kGridAxes];
  for (int i = 0; i < kGridAxes; ++i) {
    begin[i] = p.bins(i).begin(result.at[i]);
    end[i] = p.bins(i).end(result.at[i]);
  }
  LongSum<C> sum;
  GridAt at;
  for (at.at[0] = begin[0]; at.at[0] < end[0]; ++at.at[0]) {
    for (at.at[1] = begin[1]; at.at[1] < end[1]; ++at.at[1]) {
      for (at.at[2] = begin[2]; at.at[2] < end[2]; ++at.at[2]) {
        const C term = widen(from[offset(p.from, plane / p.from.inner, plane % p.from.inner, at)]);
        sum.add(p.is_backward ? term / static_cast<C>(window_size(p, at)) : term);
      }
    }
  }
  const C total = sum.total();
  const int64_t size = p.is_backward ? 1 : window_size(p, result);
  reinterpret_cast<T*>(p.to.address)[offset(p.to, index)] =
      narrow<T>(size <= 1 ? total : total / static_cast<C>(size));
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) adaptive_kernel(AdaptivePlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { adaptive_element<T>(p, i); });
}

bp_status adaptive_submit(const bp_tensor& from, const bp_tensor& to, bool is_backward,
                          Launch& launch) {
  AdaptivePlan plan;
  plan.from = grid_of(from);
  plan.to = grid_of(to);
  plan.is_backward = is_backward;
  return with_float(to.dtype, [&]<typename T>(T) {
    return run_elements<adaptive_kernel<T>>(launch, plan.to.count(), plan);
  });
}

bp_reason adaptive_supports(const bp_adaptive_avg_pool_args& args) {
  return sampling_reason(*args.x, *args.y);
}

bp_status adaptive_launch(const bp_adaptive_avg_pool_args& args, Launch& launch) {
  return adaptive_submit(*args.x, *args.y, false, launch);
}

bp_reason adaptive_backward_supports(const bp_adaptive_avg_pool_backward_args& args) {
  return sampling_reason(*args.grad_x, *args.grad_y);
}

bp_status adaptive_backward_launch(const bp_adaptive_avg_pool_backward_args& args, Launch& launch) {
  return adaptive_submit(*args.grad_y, *args.grad_x, true, launch);
}

}  // namespace

constinit const bp_kernel kAdaptiveAvgPool =
    make_kernel<bp_adaptive_avg_pool_args, adaptive_launch, adaptive_supports>(
        kernel_row("adaptive_avg_pool", BP_OP_ADAPTIVE_AVG_POOL, kFloatDtypes));
constinit const bp_kernel kAdaptiveAvgPoolBackward =
    make_kernel<bp_adaptive_avg_pool_backward_args, adaptive_backward_launch,
                adaptive_backward_supports>(
        kernel_row("adaptive_avg_pool_backward", BP_OP_ADAPTIVE_AVG_POOL_BACKWARD, kFloatDtypes));

}  // namespace bp::cuda
