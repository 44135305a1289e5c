// convolution and its gradients: f32 by oneDNN (dnnl_convolution.cpp), or in bands of rows if each
// channel makes one (depthwise.cpp), f64 as matrix products (convolution_f64.cpp), f16 and bf16
// through f32 (convolution_parts.cpp), or bf16 as it is by AVX512_BF16 and AMX, which take
// subnormals for 0.
#include "backends/host_kernels/convolution.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "backends/host_kernels/convolution_parts.hpp"
#include "backends/host_kernels/depthwise.hpp"
#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp::kernels {
namespace {

using InputArgs = bp_convolution_backward_input_args;
using WeightArgs = bp_convolution_backward_weight_args;

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

// Makes x the elements that are read, where windows of one element skip others between them. It
// then has a stride of 1, and windows of one element along all axes are one matrix product.
void leave_out_skipped(Convolution& c) {
  if (c.direction == Direction::kBackwardInput) return;
  for (size_t a = 0; a < static_cast<size_t>(c.axes); ++a) {
    if (c.kernel[a] != 1 || c.low[a] != 0 || c.high[a] != 0 || c.output[a] == 0) continue;
    c.x.strides[a + 2] *= std::exchange(c.stride[a], 1);
    c.input[a] = c.x.shape[a + 2] = c.output[a];
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
  leave_out_skipped(c);
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

Convolution describe(const InputArgs& args) {
  return describe(Direction::kBackwardInput, args, *args.grad_x, *args.weight, *args.grad_y);
}

Convolution describe(const WeightArgs& args) {
  return describe(Direction::kBackwardWeight, args, *args.x, *args.grad_weight, *args.grad_y);
}

bool is_empty(const View& view) { return element_count(view) == 0; }

// Returns whether there is a result, but no product that could be summed for it.
bool is_without_products(const Convolution& c) {
  return is_empty(c.x) || is_empty(c.weight) || is_empty(c.y);
}

// Fills the result with the bias or with zeros.
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

uint64_t workspace_of(const Convolution& c, const Env& env) {
  if (is_without_products(c)) return 0;
  if (is_depthwise(c)) return depthwise_workspace_size_bytes(c, env.thread_count());
  if (c.sum_dtype == BP_F32) return make_parts(c, env).size_bytes;
  Copied copied = make_copied(c);
  return place_copies(copied, convolution_f64_workspace_size_bytes(c, env.thread_count()));
}

bp_status submit(const Convolution& c, const Launch& launch) {
  const int thread_count = launch.thread_count();
  std::byte* const workspace = launch.workspace();
  if (is_empty(c.result())) return launch.submit([] {});
  if (is_without_products(c)) return launch.submit([=] { fill_result(c, thread_count); });
  if (is_depthwise(c)) return launch.submit([=] { run_depthwise(c, workspace, thread_count); });
  if (c.sum_dtype == BP_F32) {
    return launch.submit([parts = make_parts(c, launch), workspace, thread_count] {
      run_parts(parts, nullptr, workspace, thread_count);
    });
  }
  Copied copied = make_copied(c);
  place_copies(copied, convolution_f64_workspace_size_bytes(c, thread_count));
  return launch.submit([=]() mutable {
    run_copied(copied, workspace, thread_count, [&](const Convolution& taken) {
      run_convolution_f64(taken, workspace, thread_count);
    });
  });
}

// oneDNN adds up the products of a result one after the other in f32. For elements from 0.5 to 1
// the sum of 2^20 is 1.7e-5 off, that of 10^7 is 2.6e-3 off, and one of 2^24 ones grows no more.
constexpr int64_t kMostProducts = 1 << 20;

// `channels` are those over which a result is summed.
bp_reason reason_of(const bp_tensor& weight, int64_t channels) {
  if (weight.dtype == BP_F64) return nullptr;
  // Each factor counts as at most one more than the limit, so that no product exceeds 64 bits.
  const auto capped = [](int64_t count) { return std::min(count, kMostProducts + 1); };
  int64_t product_count = capped(channels);
  for (uint32_t i = 2; i < weight.ndim; ++i) {
    product_count = capped(product_count * capped(weight.shape[i]));
  }
  return product_count <= kMostProducts
             ? nullptr
             : "a result is a sum of more than 2^20 products, channels times window; only f64 sums "
               "keep their digits that long";
}

bp_reason forward_supports(const bp_convolution_args& args) {
  return reason_of(*args.weight, args.weight->shape[1]);
}
bp_reason backward_input_supports(const InputArgs& args) {
  return reason_of(*args.weight, args.weight->shape[0] / args.groups);
}

template <Subnormals subnormals, typename Args>
Convolution describe_for(const Args& args) {
  Convolution c = describe(args);
  c.takes_bf16 = subnormals == Subnormals::flushed && dot_bf16_refusal() == nullptr;
  return c;
}

template <Subnormals subnormals, typename Args>
uint64_t convolution_workspace(const Args& args, const Env& env) {
  return workspace_of(describe_for<subnormals>(args), env);
}
template <Subnormals subnormals, typename Args>
bp_status convolution_launch(const Args& args, Launch& launch) {
  return submit(describe_for<subnormals>(args), launch);
}

// Adds to `supports`, which may be nullptr, that the processor has products of bf16.
template <typename Args, auto supports = nullptr>
bp_reason dot_bf16_supports(const Args& args) {
  if (const bp_reason reason = dot_bf16_refusal()) return reason;
  if constexpr (supports == nullptr) {
    return nullptr;
  } else {
    return supports(args);
  }
}

// A plan that packs the weight in the layout and dtype that oneDNN reads.
template <Subnormals subnormals>
class ConvolutionPlan {
 public:
  ConvolutionPlan(const bp_convolution_args& args, const PlanRequest& request, const Env& env) {
    const Convolution c = describe_for<subnormals>(args);
    if (!request.is_constant(1)) refuse_plan("the weight is not constant");
    if (c.sum_dtype != BP_F32) refuse_plan("an f64 weight is read as it lies");
    if (is_without_products(c)) refuse_plan("there are no products");
    if (is_depthwise(c)) refuse_plan("the weight of single channels is read as it lies");
    packed_parts_ = make_packed_parts(c, env);
    DenseCopy& weight = packed_parts_.weight;
    packing_bytes_ = packed_parts_.packing.packer->workspace_size_bytes();
    weight.offset = reserve_bytes(weight.size_bytes(), packing_bytes_);
  }

  uint64_t packed_size_bytes() const { return packed_parts_.packing.weight.get_size(); }
  uint64_t workspace_size_bytes() const {
    return std::max(packed_parts_.parts.size_bytes, packing_bytes_);
  }
  const char* algorithm() const { return "oneDNN with a packed weight"; }

  bp_status pack(const bp_convolution_args& args, const Launch& launch, std::byte* packed) const {
    return launch.submit([weight = packed_parts_.weight, address = data<std::byte>(*args.weight),
                          packer = packed_parts_.packing.packer, packed,
                          workspace = launch.workspace(),
                          thread_count = launch.thread_count()]() mutable {
      void* from = address;
      if (weight.is_needed) {
        weight.view.address = address;
        from = weight.dense.address = workspace + weight.offset;
        weight.fetch(thread_count);
      }
      void* const externals[] = {from, packed};
      packer->run(externals, workspace);
    });
  }

  bp_status launch(const bp_convolution_args& args, const Launch& launch, std::byte* packed) const {
    Parts parts = packed_parts_.parts;
    parts.c = describe(args);
    for (Copied* copied : {&parts.copied, &parts.last_copied}) {
      (copied->bias.is_needed ? copied->bias.view : copied->c.bias).address = parts.c.bias.address;
    }
    return launch.submit(
        [parts, packed, workspace = launch.workspace(), thread_count = launch.thread_count()] {
          run_parts(parts, packed, workspace, thread_count);
        });
  }

 private:
  PackedParts packed_parts_;
  uint64_t packing_bytes_ = 0;
};

// Computes the sum over all axes but the second. The sum is f64 for narrower dtypes too, because
// loads take most of the time.
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
  with_float(dtype, [=]<typename T>(T) {
    if constexpr (kIsNarrow<T>) {
      *reinterpret_cast<T*>(to) = T::from_f64(sum);
    } else {
      *reinterpret_cast<T*>(to) = static_cast<T>(sum);
    }
  });
}

bp_status backward_bias_launch(const bp_convolution_backward_bias_args& args, Launch& launch) {
  const View x = view_of(*args.grad_y), y = view_of(*args.grad_bias);
  auto* const sum = with_float(args.grad_y->dtype, []<typename T>(T) { return &sum_channel<T>; });
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

}  // namespace

extern constinit const bp_kernel kConvolutionDotBf16 =
    make_kernel<bp_convolution_args, convolution_launch<Subnormals::flushed, bp_convolution_args>,
                dot_bf16_supports<bp_convolution_args, forward_supports>,
                convolution_workspace<Subnormals::flushed, bp_convolution_args>,
                ConvolutionPlan<Subnormals::flushed>>(
        dot_bf16_row(kernel_row("convolution.dot_bf16", BP_OP_CONVOLUTION, {kDotBf16Dtypes, 3})));
extern constinit const bp_kernel kConvolution =
    make_kernel<bp_convolution_args, convolution_launch<Subnormals::kept, bp_convolution_args>,
                forward_supports, convolution_workspace<Subnormals::kept, bp_convolution_args>,
                ConvolutionPlan<Subnormals::kept>>(
        kernel_row("convolution", BP_OP_CONVOLUTION, {kProductDtypes, 3}));

extern constinit const bp_kernel kConvolutionBackwardInputDotBf16 =
    make_kernel<InputArgs, convolution_launch<Subnormals::flushed, InputArgs>,
                dot_bf16_supports<InputArgs, backward_input_supports>,
                convolution_workspace<Subnormals::flushed, InputArgs>>(
        dot_bf16_row(kernel_row("convolution_backward_input.dot_bf16",
                                BP_OP_CONVOLUTION_BACKWARD_INPUT, {kDotBf16Dtypes, 3})));
extern constinit const bp_kernel kConvolutionBackwardInput =
    make_kernel<InputArgs, convolution_launch<Subnormals::kept, InputArgs>, backward_input_supports,
                convolution_workspace<Subnormals::kept, InputArgs>>(kernel_row(
        "convolution_backward_input", BP_OP_CONVOLUTION_BACKWARD_INPUT, {kProductDtypes, 3}));

extern constinit const bp_kernel kConvolutionBackwardWeightDotBf16 =
    make_kernel<WeightArgs, convolution_launch<Subnormals::flushed, WeightArgs>,
                dot_bf16_supports<WeightArgs>,
                convolution_workspace<Subnormals::flushed, WeightArgs>>(
        dot_bf16_row(kernel_row("convolution_backward_weight.dot_bf16",
                                BP_OP_CONVOLUTION_BACKWARD_WEIGHT, {kDotBf16Dtypes, 3})));
extern constinit const bp_kernel kConvolutionBackwardWeight =
    make_kernel<WeightArgs, convolution_launch<Subnormals::kept, WeightArgs>, nullptr,
                convolution_workspace<Subnormals::kept, WeightArgs>>(kernel_row(
        "convolution_backward_weight", BP_OP_CONVOLUTION_BACKWARD_WEIGHT, {kProductDtypes, 3}));

extern constinit const bp_kernel kConvolutionBackwardBias =
    make_kernel<bp_convolution_backward_bias_args, backward_bias_launch>(
        kernel_row("convolution_backward_bias", BP_OP_CONVOLUTION_BACKWARD_BIAS, {kBiasDtypes, 2}));

}  // namespace bp::kernels
