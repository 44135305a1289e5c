// avg_pool and its gradient. A thread computes one element of y, or one element of grad_x from the
// windows that cover it. cuDNN's pooling is not used, because it is memory-bound too, and has other
// rules for padding that differs between the ends of an axis.
#include <algorithm>

#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/list.hpp"

namespace bp::cuda {
namespace {

struct AvgPlan {
  Grid x, y;  // In the gradient these are grad_x and grad_y.
  GridWindow window;
  bool counts_padding = false;
};

struct Span {
  int64_t begin, end;
};

// Returns the inputs along one axis that the window of an output covers.
__host__ __device__ __forceinline__ Span inputs_of(const AvgPlan& p, int axis, int64_t output) {
  const int64_t first = output * p.window.step[axis] - p.window.low[axis];
  const int64_t last = first + p.window.kernel[axis];
  return {first < 0 ? 0 : first, last < p.x.extent[axis] ? last : p.x.extent[axis]};
}

// Returns the outputs along one axis whose windows cover an input.
__host__ __device__ __forceinline__ Span outputs_over(const AvgPlan& p, int axis, int64_t input) {
  const int64_t at = input + p.window.low[axis], step = p.window.step[axis];
  const int64_t first = at - p.window.kernel[axis] + 1;
  const int64_t end = at / step + 1;
  return {first <= 0 ? 0 : (first + step - 1) / step,
          end < p.y.extent[axis] ? end : p.y.extent[axis]};
}

__host__ __device__ __forceinline__ int64_t length(const Span& span) {
  return span.end > span.begin ? span.end - span.begin : 0;
}

// Returns the divisor of the sum of an output, or 0 for a window without elements that count.
__host__ __device__ __forceinline__ int64_t divisor(const AvgPlan& p, const GridAt& output) {
  int64_t result = 1;
  for (int i = 0; i < kGridAxes; ++i) {
    result *= p.counts_padding ? p.window.kernel[i] : length(inputs_of(p, i, output.at[i]));
  }
  return result;
}

template <typename T>
__host__ __device__ __forceinline__ void average_element(const AvgPlan& p, int64_t index) {
  const GridAt output = position(p.y, index);
  const int64_t plane = index / p.y.size();
  const T* const x = reinterpret_cast<const T*>(p.x.address);
  Span spans[kGridAxes];
  for (int i = 0; i < kGridAxes; ++i) spans[i] = inputs_of(p, i, output.at[i]);
  LongSum<Compute<T>> sum;
  GridAt from;
  for (from.at[0] = spans[0].begin; from.at[0] < spans[0].end; ++from.at[0]) {
    for (from.at[1] = spans[1].begin; from.at[1] < spans[1].end; ++from.at[1]) {
      for (from.at[2] = spans[2].begin; from.at[2] < spans[2].end; ++from.at[2]) {
        sum.add(widen(x[offset(p.x, plane / p.x.inner, plane % p.x.inner, from)]));
      }
    }
  }
  const int64_t count = divisor(p, output);
  const Compute<T> total = sum.total();
  const Compute<T> mean = count == 0 ? total : total / static_cast<Compute<T>>(count);
  reinterpret_cast<T*>(p.y.address)[offset(p.y, index)] = narrow<T>(mean);
}

template <typename T>
__host__ __device__ __forceinline__ void spread_element(const AvgPlan& p, int64_t index) {
  const GridAt input = position(p.x, index);
  const int64_t plane = index / p.x.size();
  const T* const grad_y = reinterpret_cast<const T*>(p.y.address);
  Span spans[kGridAxes];
  for (int i = 0; i < kGridAxes; ++i) spans[i] = outputs_over(p, i, input.at[i]);
  LongSum<Compute<T>> sum;
  GridAt from;
  for (from.at[0] = spans[0].begin; from.at[0] < spans[0].end; ++from.at[0]) {
    for (from.at[1] = spans[1].begin; from.at[1] < spans[1].end; ++from.at[1]) {
      for (from.at[2] = spans[2].begin; from.at[2] < spans[2].end; ++from.at[2]) {
        sum.add(widen(grad_y[offset(p.y, plane / p.y.inner, plane % p.y.inner, from)]) /
                static_cast<Compute<T>>(divisor(p, from)));
      }
    }
  }
  reinterpret_cast<T*>(p.x.address)[offset(p.x, index)] = narrow<T>(sum.total());
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) average_kernel(AvgPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { average_element<T>(p, i); });
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) spread_kernel(AvgPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { spread_element<T>(p, i); });
}

template <typename Args>
AvgPlan plan_of(const Args& args, const bp_tensor& x, const bp_tensor& y) {
  AvgPlan plan;
  plan.x = grid_of(x);
  plan.y = grid_of(y);
  plan.window = window_of(x.ndim - 2, args.kernel_size, args.stride, args.padding, nullptr);
  plan.counts_padding = args.counts_padding != 0;
  return plan;
}

bp_status avg_pool_launch(const bp_avg_pool_args& args, Launch& launch) {
  const AvgPlan plan = plan_of(args, *args.x, *args.y);
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return run_elements<average_kernel<T>>(launch, plan.y.count(), plan);
  });
}

bp_status avg_pool_backward_launch(const bp_avg_pool_backward_args& args, Launch& launch) {
  const AvgPlan plan = plan_of(args, *args.grad_x, *args.grad_y);
  return with_float(args.grad_y->dtype, [&]<typename T>(T) {
    return run_elements<spread_kernel<T>>(launch, plan.x.count(), plan);
  });
}

}  // namespace

constinit const bp_kernel kAvgPool = make_kernel<bp_avg_pool_args, avg_pool_launch>(
    kernel_row("avg_pool", BP_OP_AVG_POOL, kFloatDtypes));
constinit const bp_kernel kAvgPoolBackward =
    make_kernel<bp_avg_pool_backward_args, avg_pool_backward_launch>(
        kernel_row("avg_pool_backward", BP_OP_AVG_POOL_BACKWARD, kFloatDtypes));

}  // namespace bp::cuda
