// convolution and its gradients: f32 by oneDNN (dnnl_convolution.cpp), f64 as matrix products
// (convolution_f64.cpp). What neither takes as it lies is copied to the workspace first, and a
// result from there at the end.
#include "backends/cpu/kernels/convolution.hpp"

#include <algorithm>
#include <utility>

#include "backends/cpu/kernels/dnnl_convolution.hpp"
#include "backends/cpu/kernels/kernels.hpp"

namespace bp::kernels {
namespace {

template <typename Args>
void set_window(const Args& args, Convolution& c) {
  for (int i = 0; i < c.axes; ++i) {
    const auto a = static_cast<size_t>(i);
    c.input[a] = c.x.shape[a + 2];
    c.kernel[a] = c.weight.shape[a + 2];
    c.output[a] = c.y.shape[a + 2];
    c.stride[a] = args.stride[a];
    c.low[a] = args.padding[a];
    c.high[a] = args.padding[a + static_cast<size_t>(c.axes)];
    c.dilation[a] = args.dilation[a];
  }
}

template <typename Args>
Convolution describe(Direction direction, const Args& args, const bp_tensor& x,
                     const bp_tensor& weight, const bp_tensor& y) {
  Convolution c;
  c.direction = direction;
  c.axes = static_cast<int>(x.ndim) - 2;
  c.x = view_of(x);
  c.weight = view_of(weight);
  c.y = view_of(y);
  set_window(args, c);
  c.dtype = x.dtype;
  c.batch = x.shape[0];
  c.groups = args.groups;
  c.in_channels = weight.shape[1];
  c.out_channels = weight.shape[0] / args.groups;
  return c;
}

Convolution describe(const bp_convolution_args& args) {
  Convolution c = describe(Direction::kForward, args, *args.x, *args.weight, *args.y);
  c.has_bias = args.bias != nullptr;
  if (c.has_bias) c.bias = view_of(*args.bias);
  return c;
}

Convolution describe(const bp_convolution_backward_input_args& args) {
  return describe(Direction::kBackwardInput, args, *args.grad_x, *args.weight, *args.grad_y);
}

Convolution describe(const bp_convolution_backward_weight_args& args) {
  return describe(Direction::kBackwardWeight, args, *args.x, *args.grad_weight, *args.grad_y);
}

// A convolution all of whose tensors are taken as they lie, and the copies that this needed.
struct Plan {
  Convolution c;
  DenseCopy x, weight, y, bias;
};

Plan make_plan(const Convolution& c) {
  Plan plan;
  plan.c = c;
  const bool is_f32 = c.dtype == BP_F32;
  const auto copy_if_needed = [&](View& view, bool is_taken) -> DenseCopy {
    if (is_taken) return {};
    const DenseCopy copy(view, is_f32 ? sizeof(float) : sizeof(double));
    view = copy.dense;
    return copy;
  };
  for (auto [view, copy] : {std::pair(&plan.c.x, &plan.x), std::pair(&plan.c.weight, &plan.weight),
                            std::pair(&plan.c.y, &plan.y)}) {
    *copy = copy_if_needed(*view, is_f32 ? is_describable(*view) : is_contiguous(*view));
  }
  if (c.has_bias) plan.bias = copy_if_needed(plan.c.bias, is_contiguous(plan.c.bias));
  return plan;
}

uint64_t place_copies(Plan& plan, uint64_t size_bytes) {
  for (DenseCopy* copy : {&plan.x, &plan.weight, &plan.y, &plan.bias}) {
    copy->offset = reserve_bytes(copy->size_bytes(), size_bytes);
  }
  return size_bytes;
}

// Runs compute(c) between the copies to the workspace and the one from there.
template <typename Compute>
void run_plan(Plan& plan, std::byte* workspace, int thread_count, Compute&& compute) {
  Convolution& c = plan.c;
  const DenseCopy* result = nullptr;
  for (auto [view, copy] : {std::pair(&c.x, &plan.x), std::pair(&c.weight, &plan.weight),
                            std::pair(&c.y, &plan.y), std::pair(&c.bias, &plan.bias)}) {
    if (!copy->is_needed) continue;
    view->address = copy->dense.address = workspace + copy->offset;
    if (view == &c.result()) {
      result = copy;
    } else {
      copy->fetch(thread_count);
    }
  }
  compute(c);
  if (result != nullptr) result->store(thread_count);
}

bool is_empty(const View& view) { return element_count(view) == 0; }

// There is a result, but nothing that could be summed for it.
bool is_without_products(const Convolution& c) {
  return is_empty(c.x) || is_empty(c.weight) || is_empty(c.y);
}

// The bias, or zero.
void fill_result(const Convolution& c, int thread_count) {
  const uint64_t zero = 0;
  View from = c.result();
  std::fill_n(from.strides, from.ndim, 0);
  from.address = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&zero));
  if (c.has_bias) {
    from.address = c.bias.address;
    from.strides[1] = c.bias.strides[0];
  }
  copy_elements(from, c.result(), c.dtype == BP_F32 ? sizeof(float) : sizeof(double), thread_count);
}

uint64_t workspace_of(const Convolution& c, const Env& env) {
  if (is_without_products(c)) return 0;
  Plan plan = make_plan(c);
  const uint64_t size_bytes = c.dtype == BP_F32
                                  ? find_convolution(plan.c, env)->workspace_size_bytes()
                                  : convolution_f64_workspace_size_bytes(c, env.thread_count());
  return place_copies(plan, size_bytes);
}

bp_status submit(const Convolution& c, const Launch& launch) {
  const int thread_count = launch.thread_count();
  std::byte* const workspace = launch.workspace();
  if (is_empty(c.result())) return launch.submit([] {});
  if (is_without_products(c)) return launch.submit([=] { fill_result(c, thread_count); });
  Plan plan = make_plan(c);
  if (c.dtype == BP_F64) {
    place_copies(plan, convolution_f64_workspace_size_bytes(c, thread_count));
    return launch.submit([=]() mutable {
      run_plan(plan, workspace, thread_count, [&](const Convolution& taken) {
        run_convolution_f64(taken, workspace, thread_count);
      });
    });
  }
  std::shared_ptr<const Program> program = find_convolution(plan.c, launch);
  place_copies(plan, program->workspace_size_bytes());
  return launch.submit([=]() mutable {
    run_plan(plan, workspace, thread_count, [&](const Convolution& taken) {
      void* const externals[] = {taken.x.address, taken.weight.address, taken.y.address,
                                 taken.bias.address};
      program->run(externals, workspace);
    });
  });
}

uint64_t forward_workspace(const bp_convolution_args& args, const Env& env) {
  return workspace_of(describe(args), env);
}
bp_status forward_launch(const bp_convolution_args& args, Launch& launch) {
  return submit(describe(args), launch);
}

uint64_t backward_input_workspace(const bp_convolution_backward_input_args& args, const Env& env) {
  return workspace_of(describe(args), env);
}
bp_status backward_input_launch(const bp_convolution_backward_input_args& args, Launch& launch) {
  return submit(describe(args), launch);
}

uint64_t backward_weight_workspace(const bp_convolution_backward_weight_args& args,
                                   const Env& env) {
  return workspace_of(describe(args), env);
}
bp_status backward_weight_launch(const bp_convolution_backward_weight_args& args, Launch& launch) {
  return submit(describe(args), launch);
}

// The sum over all axes but the second, in f64 for f32 too: it costs nothing beside the loads.
template <typename T>
void sum_channel(const View& x, int64_t channel, T& sum) {
  const T* const plane = reinterpret_cast<const T*>(x.address) + channel * x.strides[1];
  const uint32_t last = x.ndim - 1;
  const int64_t rows = element_count(x) / (x.shape[1] * x.shape[last]);
  double total = 0.0;
  for (int64_t row = 0; row < rows; ++row) {
    const T* element = plane;
    int64_t rest = row;
    for (uint32_t i = last; i-- > 0;) {
      if (i == 1) continue;
      element += rest % x.shape[i] * x.strides[i];
      rest /= x.shape[i];
    }
    double parts[4] = {};
    for (int64_t c = 0; c < x.shape[last]; ++c) parts[c % 4] += element[c * x.strides[last]];
    total += (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
  sum = static_cast<T>(total);
}

template <typename T>
bp_status submit_bias(const bp_convolution_backward_bias_args& args, const Launch& launch) {
  const View x = view_of(*args.grad_y), y = view_of(*args.grad_bias);
  return launch.submit([=, thread_count = launch.thread_count()] {
    if (is_empty(y)) return;
    T* const sums = reinterpret_cast<T*>(y.address);
    const int64_t elements = std::max<int64_t>(1, element_count(x) / y.shape[0]);
    parallel_for(thread_count, y.shape[0], std::max<int64_t>(1, 32768 / elements),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t c = begin; c < end; ++c) {
                     T& sum = sums[c * y.strides[0]];
                     sum = 0;
                     if (!is_empty(x)) sum_channel(x, c, sum);
                   }
                 });
  });
}

bp_status backward_bias_launch(const bp_convolution_backward_bias_args& args, Launch& launch) {
  return args.grad_y->dtype == BP_F32 ? submit_bias<float>(args, launch)
                                      : submit_bias<double>(args, launch);
}

constexpr bp_dtype kDtypes[] = {BP_F32, BP_F32, BP_F32, BP_F64, BP_F64, BP_F64};
constexpr bp_dtype kBiasDtypes[] = {BP_F32, BP_F32, BP_F64, BP_F64};

}  // namespace

constinit const bp_kernel kConvolution =
    make_kernel<bp_convolution_args, forward_launch, nullptr, forward_workspace>({
        .name = "convolution",
        .op = BP_OP_CONVOLUTION,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes) / 3,
        .dtype_count = 3,
        .layouts = BP_LAYOUT_ANY,
    });
constinit const bp_kernel kConvolutionBackwardInput =
    make_kernel<bp_convolution_backward_input_args, backward_input_launch, nullptr,
                backward_input_workspace>({
        .name = "convolution_backward_input",
        .op = BP_OP_CONVOLUTION_BACKWARD_INPUT,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes) / 3,
        .dtype_count = 3,
        .layouts = BP_LAYOUT_ANY,
    });
constinit const bp_kernel kConvolutionBackwardWeight =
    make_kernel<bp_convolution_backward_weight_args, backward_weight_launch, nullptr,
                backward_weight_workspace>({
        .name = "convolution_backward_weight",
        .op = BP_OP_CONVOLUTION_BACKWARD_WEIGHT,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kDtypes,
        .dtype_row_count = std::size(kDtypes) / 3,
        .dtype_count = 3,
        .layouts = BP_LAYOUT_ANY,
    });
constinit const bp_kernel kConvolutionBackwardBias =
    make_kernel<bp_convolution_backward_bias_args, backward_bias_launch>({
        .name = "convolution_backward_bias",
        .op = BP_OP_CONVOLUTION_BACKWARD_BIAS,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kBiasDtypes,
        .dtype_row_count = std::size(kBiasDtypes) / 2,
        .dtype_count = 2,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels
