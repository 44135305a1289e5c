// interpolate and its gradient. A thread computes one element of y, or one element of grad_x from
// the outputs that read it, which lie side by side along each axis.
#include <algorithm>

#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backplane/shell/sampling.hpp"

namespace bp::cuda {
namespace {

struct Span {
  int64_t begin, end;
};

struct InterpolatePlan {
  Grid x, y;  // In the gradient these are grad_x and grad_y.
  Positions axes[kGridAxes];
};

// The one or two elements that an output reads along an axis, and their weights.
template <typename C>
struct Taps {
  __host__ __device__ Taps() = default;
  __host__ __device__ __forceinline__ Taps(const Positions& axis, int64_t output) {
    const Positions::Place at = axis.place(output);
    first = at.below;
    count = at.rest == 0 ? 1 : 2;
    weights[0] = axis.share<C>(axis.unit - at.rest);
    weights[1] = axis.share<C>(at.rest);
  }

  int64_t first = 0;
  int count = 0;
  C weights[2] = {};
};

template <typename T>
__host__ __device__ __forceinline__ void interpolate_element(const InterpolatePlan& p,
                                                             int64_t index) {
  using C = Compute<T>;
  const GridAt output = position(p.y, index);
  const int64_t plane = index / p.y.size();
  const T* const x = reinterpret_cast<const T*>(p.x.address);
  Taps<C> taps[kGridAxes];
  for (int i = 0; i < kGridAxes; ++i) taps[i] = Taps<C>(p.axes[i], output.at[i]);
  C sum = static_cast<C>(-0.0);  // Adding a -0 to it gives -0.
  for (int i = 0; i < taps[0].count; ++i) {
    for (int j = 0; j < taps[1].count; ++j) {
      const C outer = taps[0].weights[i] * taps[1].weights[j];
      for (int k = 0; k < taps[2].count; ++k) {
        const GridAt from = {taps[0].first + i, taps[1].first + j, taps[2].first + k};
        sum += outer * taps[2].weights[k] *
               widen(x[offset(p.x, plane / p.x.inner, plane % p.x.inner, from)]);
      }
    }
  }
  reinterpret_cast<T*>(p.y.address)[offset(p.y, index)] = narrow<T>(sum);
}

template <typename T>
__host__ __device__ __forceinline__ void spread_element(const InterpolatePlan& p, int64_t index) {
  using C = Compute<T>;
  const GridAt input = position(p.x, index);
  const int64_t plane = index / p.x.size();
  const T* const grad_y = reinterpret_cast<const T*>(p.y.address);
  Span spans[kGridAxes];
  for (int i = 0; i < kGridAxes; ++i) {
    const Positions& axis = p.axes[i];
    spans[i] = {axis.first_output(input.at[i]), axis.outputs_before(input.at[i] + 1)};
  }
  LongSum<C> sum;
  GridAt from;
  for (from.at[0] = spans[0].begin; from.at[0] < spans[0].end; ++from.at[0]) {
    const C outer = p.axes[0].weight<C>(input.at[0], from.at[0]);
    for (from.at[1] = spans[1].begin; from.at[1] < spans[1].end; ++from.at[1]) {
      const C middle = outer * p.axes[1].weight<C>(input.at[1], from.at[1]);
      for (from.at[2] = spans[2].begin; from.at[2] < spans[2].end; ++from.at[2]) {
        const C inner = middle * p.axes[2].weight<C>(input.at[2], from.at[2]);
        sum.add(inner * widen(grad_y[offset(p.y, plane / p.y.inner, plane % p.y.inner, from)]));
      }
    }
  }
  reinterpret_cast<T*>(p.x.address)[offset(p.x, index)] = narrow<T>(sum.total());
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    interpolate_kernel(InterpolatePlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { interpolate_element<T>(p, i); });
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) spread_kernel(InterpolatePlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { spread_element<T>(p, i); });
}

template <typename Args>
InterpolatePlan plan_of(const Args& args, const bp_tensor& x, const bp_tensor& y) {
  InterpolatePlan plan;
  plan.x = grid_of(x);
  plan.y = grid_of(y);
  for (int i = 0; i < kGridAxes; ++i) {
    plan.axes[i] = positions_of(args, plan.x.extent[i], plan.y.extent[i]);
  }
  return plan;
}

bp_reason interpolate_supports(const bp_interpolate_args& args) {
  return sampling_reason(*args.x, *args.y);
}

bp_status interpolate_launch(const bp_interpolate_args& args, Launch& launch) {
  const InterpolatePlan plan = plan_of(args, *args.x, *args.y);
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return run_elements<interpolate_kernel<T>>(launch, plan.y.count(), plan);
  });
}

bp_reason interpolate_backward_supports(const bp_interpolate_backward_args& args) {
  return sampling_reason(*args.grad_x, *args.grad_y);
}

bp_status interpolate_backward_launch(const bp_interpolate_backward_args& args, Launch& launch) {
  const InterpolatePlan plan = plan_of(args, *args.grad_x, *args.grad_y);
  return with_float(args.grad_y->dtype, [&]<typename T>(T) {
    return run_elements<spread_kernel<T>>(launch, plan.x.count(), plan);
  });
}

}  // namespace

constinit const bp_kernel kInterpolate =
    make_kernel<bp_interpolate_args, interpolate_launch, interpolate_supports>(
        kernel_row("interpolate", BP_OP_INTERPOLATE, kFloatDtypes));
constinit const bp_kernel kInterpolateBackward =
    make_kernel<bp_interpolate_backward_args, interpolate_backward_launch,
                interpolate_backward_supports>(
        kernel_row("interpolate_backward", BP_OP_INTERPOLATE_BACKWARD, kFloatDtypes));

}  // namespace bp::cuda
