// Convolution and its gradients, element by element, for every stride, every mixture of dtypes,
// padding that differs between the ends of an axis, and tensors without elements. A thread computes
// an element of y or of grad_x, and a warp computes one of grad_weight. Each sum has one order, so
// that equal input gives equal bits. The kernels are slower than cuDNN, because they read both
// factors of each product from memory.
#include <algorithm>

#include "backends/cuda/kernels/convolution.hpp"
#include "backends/cuda/kernels/grid.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/mixed.cuh"
#include "backends/cuda/kernels/reduce.cuh"

namespace bp::cuda {
namespace {

struct DirectGrid : Grid {
  MixedKind kind = MixedKind::kWide;
};

struct DirectPlan {
  DirectGrid x, weight, y;
  const std::byte* bias = nullptr;
  int64_t bias_stride = 0;
  int64_t groups = 1;
  int64_t step[kGridAxes] = {1, 1, 1}, dilation[kGridAxes] = {1, 1, 1}, low[kGridAxes] = {};
};

// Finds the input that a tap of an output reads. Returns false if it is padding.
__host__ __device__ __forceinline__ bool input_of(const DirectPlan& p, const GridAt& output,
                                                  const GridAt& tap, GridAt& input) {
  bool is_inside = true;
  for (int i = 0; i < kGridAxes; ++i) {
    input.at[i] = output.at[i] * p.step[i] - p.low[i] + tap.at[i] * p.dilation[i];
    is_inside = is_inside && input.at[i] >= 0 && input.at[i] < p.x.extent[i];
  }
  return is_inside;
}

// Finds the output whose tap reads an input. Returns false if there is none.
__host__ __device__ __forceinline__ bool output_of(const DirectPlan& p, const GridAt& input,
                                                   const GridAt& tap, GridAt& output) {
  bool is_inside = true;
  for (int i = 0; i < kGridAxes; ++i) {
    const int64_t reach = input.at[i] + p.low[i] - tap.at[i] * p.dilation[i];
    output.at[i] = reach / p.step[i];
    is_inside = is_inside && reach >= 0 && reach % p.step[i] == 0 && output.at[i] < p.y.extent[i];
  }
  return is_inside;
}

template <typename Sum>
__host__ __device__ __forceinline__ Sum load(const DirectGrid& grid, int64_t at) {
  return load_as<Sum>(grid.address, grid.kind, at);
}

template <typename Sum>
__host__ __device__ __forceinline__ void forward_element(const DirectPlan& p, int64_t index) {
  const GridAt output = position(p.y, index);
  const int64_t channel = index / p.y.size() % p.y.inner, image = index / p.y.size() / p.y.inner;
  const int64_t first = channel / (p.weight.outer / p.groups) * p.weight.inner;
  LongSum<Sum> sum;
  for (int64_t c = 0; c < p.weight.inner; ++c) {
    for (int64_t k = 0; k < p.weight.size(); ++k) {
      const GridAt tap = position(p.weight, k);
      GridAt input;
      if (!input_of(p, output, tap, input)) continue;
      sum.add(load<Sum>(p.x, offset(p.x, image, first + c, input)) *
              load<Sum>(p.weight, offset(p.weight, channel, c, tap)));
    }
  }
  if (p.bias != nullptr) sum.add(load_as<Sum>(p.bias, p.y.kind, channel * p.bias_stride));
  store_as(p.y.address, p.y.kind, offset(p.y, image, channel, output), sum.total());
}

template <typename Sum>
__host__ __device__ __forceinline__ void input_element(const DirectPlan& p, int64_t index) {
  const GridAt input = position(p.x, index);
  const int64_t channel = index / p.x.size() % p.x.inner, image = index / p.x.size() / p.x.inner;
  const int64_t outputs = p.weight.outer / p.groups;
  const int64_t first = channel / p.weight.inner * outputs, c = channel % p.weight.inner;
  LongSum<Sum> sum;
  for (int64_t o = first; o < first + outputs; ++o) {
    for (int64_t k = 0; k < p.weight.size(); ++k) {
      const GridAt tap = position(p.weight, k);
      GridAt output;
      if (!output_of(p, input, tap, output)) continue;
      sum.add(load<Sum>(p.y, offset(p.y, image, o, output)) *
              load<Sum>(p.weight, offset(p.weight, o, c, tap)));
    }
  }
  store_as(p.x.address, p.x.kind, offset(p.x, image, channel, input), sum.total());
}

// Returns the part of an element of grad_weight that `lane` of `lanes` computes.
template <typename Sum>
__host__ __device__ __forceinline__ Sum weight_part(const DirectPlan& p, int64_t index,
                                                    int64_t lane, int64_t lanes) {
  const GridAt tap = position(p.weight, index);
  const int64_t c = index / p.weight.size() % p.weight.inner;
  const int64_t o = index / p.weight.size() / p.weight.inner;
  const int64_t channel = o / (p.weight.outer / p.groups) * p.weight.inner + c;
  LongSum<Sum> sum;
  for (int64_t i = lane; i < p.y.outer * p.y.size(); i += lanes) {
    const GridAt output = position(p.y, i);
    GridAt input;
    if (!input_of(p, output, tap, input)) continue;
    const int64_t image = i / p.y.size();
    sum.add(load<Sum>(p.y, offset(p.y, image, o, output)) *
            load<Sum>(p.x, offset(p.x, image, channel, input)));
  }
  return sum.total();
}

template <typename Sum>
__global__ void __launch_bounds__(kBlockThreads) forward_kernel(DirectPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { forward_element<Sum>(p, i); });
}

template <typename Sum>
__global__ void __launch_bounds__(kBlockThreads) input_kernel(DirectPlan p, int64_t count) {
  for_elements(count, [&](int64_t i) { input_element<Sum>(p, i); });
}

template <typename Sum>
__global__ void __launch_bounds__(kBlockThreads) weight_kernel(DirectPlan p, int64_t count) {
  constexpr int64_t kWarps = kBlockThreads / kWarpSize;
  const unsigned lane = threadIdx.x % kWarpSize;
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize; i < count; i += step) {
    const Sum sum = warp_reduce(weight_part<Sum>(p, i, lane, kWarpSize), Plus());
    if (lane != 0) continue;
    const int64_t c = i / p.weight.size() % p.weight.inner;
    const int64_t o = i / p.weight.size() / p.weight.inner;
    store_as(p.weight.address, p.weight.kind, offset(p.weight, o, c, position(p.weight, i)), sum);
  }
}

template <typename Sum>
DirectGrid direct_grid(const bp_tensor& t) {
  return {grid_of(t), mixed_kind<Sum>(t.dtype)};
}

// The bias has the dtype of y.
template <typename Sum>
DirectPlan plan_of(const Convolution& c) {
  DirectPlan plan;
  plan.x = direct_grid<Sum>(*c.x);
  plan.weight = direct_grid<Sum>(*c.weight);
  plan.y = direct_grid<Sum>(*c.y);
  plan.groups = c.groups;
  if (c.bias != nullptr) {
    plan.bias = data<std::byte>(*c.bias);
    plan.bias_stride = c.bias->strides[0];
  }
  for (int i = 0; i < c.axes; ++i) {
    const auto from = static_cast<size_t>(i);
    plan.step[kGridAxes - c.axes + i] = c.stride[from];
    plan.dilation[kGridAxes - c.axes + i] = c.dilation[from];
    plan.low[kGridAxes - c.axes + i] = c.low[from];
  }
  return plan;
}

template <typename Sum>
bp_status launch_direct(const Convolution& c, Launch& launch) {
  const DirectPlan plan = plan_of<Sum>(c);
  const int64_t count = element_count(c.result());
  if (c.direction == DnnDirection::kForward) {
    return run_elements<forward_kernel<Sum>>(launch, count, plan);
  }
  if (c.direction == DnnDirection::kBackwardInput) {
    return run_elements<input_kernel<Sum>>(launch, count, plan);
  }
  constexpr int64_t kWarps = kBlockThreads / kWarpSize, kMostBlocks = int64_t{1} << 20;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, (count + kWarps - 1) / kWarps));
  return run<weight_kernel<Sum>>(launch, blocks, kBlockThreads, 0, plan, count);
}

struct WidenElement {
  template <typename T>
  __device__ float operator()(T x) const {
    return static_cast<float>(widen(x));
  }
};

template <typename T>
struct AddAndRound {
  __device__ T operator()(float sum, T bias) const { return narrow<T>(sum + widen(bias)); }
};

struct KeepElement {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return x;
  }
};

// ---- The gradient for the bias ------------------------------------------------------------------

template <typename A>
struct ChannelSum {
  using Acc = A;
  __host__ __device__ static Acc identity() { return Acc{0}; }
  template <typename X>
  __host__ __device__ static Acc take(Acc acc, X x, int64_t) {
    return acc + static_cast<Acc>(widen(x));
  }
  __host__ __device__ static Acc combine(Acc a, Acc b) { return a + b; }
  __host__ __device__ static void write(Acc acc, const ReduceResult& result, int64_t at) {
    store_as(result.y, static_cast<MixedKind>(result.kind), at, acc);
  }
};

Reduction channel_reduction(const bp_convolution_backward_bias_args& args) {
  const uint32_t all = (1u << args.grad_y->ndim) - 1;
  return {*args.grad_y, *args.grad_bias, all & ~2u, false};
}

uint64_t backward_bias_workspace(const bp_convolution_backward_bias_args& args, const Env&) {
  return channel_reduction(args).parts_size_bytes(args.grad_y->dtype == BP_F64 ? 8 : 4);
}

bp_status backward_bias_launch(const bp_convolution_backward_bias_args& args, Launch& launch) {
  const Reduction reduction = channel_reduction(args);
  return with_float(args.grad_y->dtype, [&]<typename X>(X) {
    ReduceResult result;
    result.kind = static_cast<uint32_t>(mixed_kind<Compute<X>>(args.grad_bias->dtype));
    return submit_reduce<ChannelSum<Compute<X>>, X>(launch, reduction, result);
  });
}

}  // namespace

bp_status launch_convolution_direct(const Convolution& c, Launch& launch) {
  if (element_count(c.result()) == 0) return BP_OK;
  return c.x->dtype == BP_F64 ? launch_direct<double>(c, launch) : launch_direct<float>(c, launch);
}

bp_status launch_bias_fill(const Convolution& c, Launch& launch) {
  int64_t strides[BP_MAX_RANK] = {};
  strides[1] = c.bias->strides[0];
  const int64_t item = dtype_size_bytes(c.y->dtype);
  const Loop loop =
      make_loop(c.y->ndim, c.y->shape, {operand(c.y), {data<std::byte>(*c.bias), strides, item}});
  return with_width(item, [&]<typename T>(T) {
    return submit_map<KeepElement, T, T>(launch, KeepElement(), loop);
  });
}

bp_status launch_widening(const bp_tensor& from, std::byte* to, Launch& launch) {
  const int64_t count = element_count(from), one = 1;
  const Loop loop = make_loop(1, &count,
                              {{to, &one, sizeof(float)},
                               {data<std::byte>(from), &one, dtype_size_bytes(from.dtype)}});
  return with_float(from.dtype, [&]<typename T>(T) {
    return submit_map<WidenElement, float, T>(launch, WidenElement(), loop);
  });
}

bp_status launch_bias_rounding(const Convolution& c, const std::byte* sums, const int64_t* strides,
                               Launch& launch) {
  int64_t of_bias[BP_MAX_RANK] = {};
  of_bias[1] = c.bias->strides[0];
  const Loop loop = make_loop(
      c.y->ndim, c.y->shape,
      {operand(c.y),
       {sums, strides, sizeof(float)},
       {data<std::byte>(*c.bias), of_bias, dtype_size_bytes(c.bias->dtype)}});
  return with_float(c.y->dtype, [&]<typename T>(T) {
    return submit_map<AddAndRound<T>, T, float, T>(launch, AddAndRound<T>(), loop);
  });
}

constinit const bp_kernel kConvolutionBackwardBias =
    make_kernel<bp_convolution_backward_bias_args, backward_bias_launch, nullptr,
                backward_bias_workspace>(
        kernel_row("convolution_backward_bias", BP_OP_CONVOLUTION_BACKWARD_BIAS, {kBiasDtypes, 2}));

}  // namespace bp::cuda
