// convolution and its gradients: f32 by oneDNN (dnnl_convolution.cpp), f64 as matrix products
// (convolution_f64.cpp), f16 and bf16 through f32, so many images at once as a cache holds. What is
// not taken as it is is copied to the workspace first, and a result from there at the end.
#include "backends/cpu/kernels/convolution.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "backends/cpu/kernels/dnnl_convolution.hpp"
#include "backends/cpu/kernels/kernels.hpp"
#include "backends/cpu/kernels/narrow.hpp"
#include "backends/cpu/kernels/product.hpp"

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
  c.x_dtype = x.dtype;
  c.weight_dtype = weight.dtype;
  c.y_dtype = y.dtype;
  c.sum_dtype = x.dtype == BP_F64 ? BP_F64 : BP_F32;
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

// A convolution all of whose tensors are taken as they are, and the copies that this needed.
struct Plan {
  Convolution c;
  DenseCopy x, weight, y, bias;
};

Plan make_plan(const Convolution& c) {
  Plan plan;
  plan.c = c;
  const bool is_f32 = c.sum_dtype == BP_F32;
  const auto copy_if_needed = [&](View& view, bp_dtype dtype, bool is_taken) -> DenseCopy {
    if (is_taken && dtype == c.sum_dtype) return {};
    const DenseCopy copy(view, dtype, c.sum_dtype);
    view = copy.dense;
    return copy;
  };
  for (auto [view, dtype, copy] : {std::tuple(&plan.c.x, c.x_dtype, &plan.x),
                                   std::tuple(&plan.c.weight, c.weight_dtype, &plan.weight),
                                   std::tuple(&plan.c.y, c.y_dtype, &plan.y)}) {
    *copy = copy_if_needed(*view, dtype, is_f32 ? is_describable(*view) : is_contiguous(*view));
  }
  if (c.has_bias) plan.bias = copy_if_needed(plan.c.bias, c.y_dtype, is_contiguous(plan.c.bias));
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

// Images [begin, begin + count) of the batch.
Convolution images_of(const Convolution& c, int64_t begin, int64_t count) {
  Convolution part = c;
  part.batch = part.x.shape[0] = part.y.shape[0] = count;
  for (auto [view, dtype] : {std::pair(&part.x, c.x_dtype), std::pair(&part.y, c.y_dtype)}) {
    if (view->address != nullptr) {
      view->address += begin * view->strides[0] * dtype_size_bytes(dtype);
    }
  }
  return part;
}

// How many images are converted to f32 at once: a part of the batch that the last cache holds.
int64_t images_at_once(const Convolution& c) {
  constexpr int64_t kPartElements = 1 << 22;
  if (c.x_dtype == c.sum_dtype && c.y_dtype == c.sum_dtype) return c.batch;
  const int64_t elements = (element_count(c.x) + element_count(c.y)) / c.batch;
  const int64_t most = std::max<int64_t>(1, kPartElements / elements);
  const int64_t parts = (c.batch + most - 1) / most;
  return (c.batch + parts - 1) / parts;
}

// An f32 convolution, part by part of its batch. The parts have equal extents but for the last one.
struct Parts {
  Convolution c;
  int64_t images;
  Plan plan, last_plan;
  std::shared_ptr<const Program> program, last_program;
  View sum;  // Of the gradients of weight that several parts have; else without extents.
  uint64_t sum_offset = 0, size_bytes = 0;
};

Parts make_parts(const Convolution& c, const Env& env) {
  Parts parts;
  parts.c = c;
  parts.images = images_at_once(c);
  const int64_t last = c.batch - (c.batch - 1) / parts.images * parts.images;
  Convolution first = images_of(c, 0, parts.images);
  const bool is_summed = c.direction == Direction::kBackwardWeight && parts.images != c.batch;
  if (is_summed) {
    // Each part leaves its own gradient where the plan has it, in f32.
    parts.sum = dense_view(c.weight, nullptr);
    first.weight = parts.sum;
    first.weight_dtype = BP_F32;
  }
  const auto place = [&](const Convolution& part, Plan& plan,
                         std::shared_ptr<const Program>& program) {
    plan = make_plan(part);
    program = find_convolution(plan.c, env);
    uint64_t end = place_copies(plan, program->workspace_size_bytes());
    if (is_summed) {
      const auto size_bytes = static_cast<uint64_t>(element_count(c.weight)) * sizeof(float);
      plan.weight.offset = reserve_bytes(size_bytes, end);
    }
    parts.size_bytes = std::max(parts.size_bytes, end);
  };
  place(first, parts.plan, parts.program);
  if (last != parts.images) place(images_of(first, 0, last), parts.last_plan, parts.last_program);
  if (is_summed) {
    parts.sum_offset = reserve_bytes(static_cast<uint64_t>(element_count(c.weight)) * sizeof(float),
                                     parts.size_bytes);
  }
  return parts;
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
  copy_elements(from, c.result(), dtype_size_bytes(c.result_dtype()), thread_count);
}

// sum = part, or sum += part.
void add_part(const float* part, float* sum, int64_t count, bool is_first, int thread_count) {
  constexpr int64_t kGrainElements = 32768;
  parallel_for(thread_count, count, kGrainElements, [&](int64_t begin, int64_t end) {
    if (is_first) {
      std::copy(part + begin, part + end, sum + begin);
    } else {
      for (int64_t i = begin; i < end; ++i) sum[i] += part[i];
    }
  });
}

void run_part(Plan plan, const Program& program, std::byte* workspace, int thread_count) {
  run_plan(plan, workspace, thread_count, [&](const Convolution& taken) {
    void* const externals[] = {taken.x.address, taken.weight.address, taken.y.address,
                               taken.bias.address};
    program.run(externals, workspace);
  });
}

void run_parts(const Parts& parts, std::byte* workspace, int thread_count) {
  const Convolution& c = parts.c;
  const bool is_summed = parts.sum.ndim != 0;
  auto* const sum = reinterpret_cast<float*>(workspace + parts.sum_offset);
  for (int64_t begin = 0; begin < c.batch; begin += parts.images) {
    const bool is_last = begin + parts.images >= c.batch && parts.last_program != nullptr;
    Plan plan = is_last ? parts.last_plan : parts.plan;
    const Convolution part = images_of(c, begin, plan.c.batch);
    for (auto [copy, taken, view] :
         {std::tuple(&plan.x, &plan.c.x, &part.x), std::tuple(&plan.y, &plan.c.y, &part.y)}) {
      (copy->is_needed ? copy->view : *taken).address = view->address;
    }
    if (is_summed) plan.c.weight.address = workspace + plan.weight.offset;
    run_part(plan, is_last ? *parts.last_program : *parts.program, workspace, thread_count);
    if (is_summed) {
      add_part(reinterpret_cast<const float*>(plan.c.weight.address), sum, element_count(parts.sum),
               begin == 0, thread_count);
    }
  }
  if (!is_summed) return;
  View from = parts.sum;
  from.address = workspace + parts.sum_offset;
  convert_elements(from, BP_F32, c.weight, c.weight_dtype, thread_count);
}

uint64_t workspace_of(const Convolution& c, const Env& env) {
  if (is_without_products(c)) return 0;
  if (c.sum_dtype == BP_F32) return make_parts(c, env).size_bytes;
  Plan plan = make_plan(c);
  return place_copies(plan, convolution_f64_workspace_size_bytes(c, env.thread_count()));
}

bp_status submit(const Convolution& c, const Launch& launch) {
  const int thread_count = launch.thread_count();
  std::byte* const workspace = launch.workspace();
  if (is_empty(c.result())) return launch.submit([] {});
  if (is_without_products(c)) return launch.submit([=] { fill_result(c, thread_count); });
  if (c.sum_dtype == BP_F32) {
    return launch.submit([parts = make_parts(c, launch), workspace, thread_count] {
      run_parts(parts, workspace, thread_count);
    });
  }
  Plan plan = make_plan(c);
  place_copies(plan, convolution_f64_workspace_size_bytes(c, thread_count));
  return launch.submit([=]() mutable {
    run_plan(plan, workspace, thread_count, [&](const Convolution& taken) {
      run_convolution_f64(taken, workspace, thread_count);
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

// The sum over all axes but the second, in f64 for narrower dtypes too: it costs nothing beside the
// loads.
template <typename T>
double sum_channel(const View& x, int64_t channel) {
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
    for (int64_t c = 0; c < x.shape[last]; ++c) parts[c % 4] += widen(element[c * x.strides[last]]);
    total += (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }
  return total;
}

void store_sum(double sum, bp_dtype dtype, std::byte* to) {
  switch (dtype) {
    case BP_F16:
      *reinterpret_cast<Float16*>(to) = Float16::from_f64(sum);
      break;
    case BP_BF16:
      *reinterpret_cast<BFloat16*>(to) = BFloat16::from_f64(sum);
      break;
    case BP_F32:
      *reinterpret_cast<float*>(to) = static_cast<float>(sum);
      break;
    default:
      *reinterpret_cast<double*>(to) = sum;
  }
}

bp_status backward_bias_launch(const bp_convolution_backward_bias_args& args, Launch& launch) {
  const View x = view_of(*args.grad_y), y = view_of(*args.grad_bias);
  const auto sum = args.grad_y->dtype == BP_F16    ? sum_channel<Float16>
                   : args.grad_y->dtype == BP_BF16 ? sum_channel<BFloat16>
                   : args.grad_y->dtype == BP_F32  ? sum_channel<float>
                                                   : sum_channel<double>;
  return launch.submit([=, dtype = args.grad_bias->dtype, thread_count = launch.thread_count()] {
    if (is_empty(y)) return;
    const int64_t elements = std::max<int64_t>(1, element_count(x) / y.shape[0]);
    parallel_for(thread_count, y.shape[0], std::max<int64_t>(1, 32768 / elements),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t c = begin; c < end; ++c) {
                     store_sum(is_empty(x) ? 0.0 : sum(x, c), dtype,
                               y.address + c * y.strides[0] * dtype_size_bytes(dtype));
                   }
                 });
  });
}

constexpr bp_dtype kBiasDtypes[] = {BP_F32,  BP_F32, BP_F64, BP_F64, BP_F16,  BP_F16,
                                    BP_F16,  BP_F32, BP_F32, BP_F16, BP_BF16, BP_BF16,
                                    BP_BF16, BP_F32, BP_F32, BP_BF16};

}  // namespace

constinit const bp_kernel kConvolution =
    make_kernel<bp_convolution_args, forward_launch, nullptr, forward_workspace>({
        .name = "convolution",
        .op = BP_OP_CONVOLUTION,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kProductDtypes,
        .dtype_row_count = std::size(kProductDtypes) / 3,
        .dtype_count = 3,
        .layouts = BP_LAYOUT_ANY,
    });
constinit const bp_kernel kConvolutionBackwardInput =
    make_kernel<bp_convolution_backward_input_args, backward_input_launch, nullptr,
                backward_input_workspace>({
        .name = "convolution_backward_input",
        .op = BP_OP_CONVOLUTION_BACKWARD_INPUT,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kProductDtypes,
        .dtype_row_count = std::size(kProductDtypes) / 3,
        .dtype_count = 3,
        .layouts = BP_LAYOUT_ANY,
    });
constinit const bp_kernel kConvolutionBackwardWeight =
    make_kernel<bp_convolution_backward_weight_args, backward_weight_launch, nullptr,
                backward_weight_workspace>({
        .name = "convolution_backward_weight",
        .op = BP_OP_CONVOLUTION_BACKWARD_WEIGHT,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kProductDtypes,
        .dtype_row_count = std::size(kProductDtypes) / 3,
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
