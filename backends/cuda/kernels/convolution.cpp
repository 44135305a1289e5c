#include "backends/cuda/kernels/convolution.hpp"

#include <algorithm>

#include "backends/cuda/kernels/library_kernel.hpp"
#include "backends/cuda/kernels/list.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp::cuda {
namespace {

template <typename Args>
Convolution describe(DnnDirection direction, const Args& args, const bp_tensor* x,
                     const bp_tensor* weight, const bp_tensor* y) {
  Convolution c;
  c.direction = direction;
  c.axes = static_cast<int>(x->ndim) - 2;
  c.x = x;
  c.weight = weight;
  c.y = y;
  c.groups = args.groups;
  c.stride.fill(1);
  c.dilation.fill(1);
  for (int i = 0; i < c.axes; ++i) {
    const auto a = static_cast<size_t>(i);
    c.stride[a] = args.stride[a];
    c.dilation[a] = args.dilation[a];
    c.low[a] = args.padding[a];
    c.high[a] = args.padding[a + static_cast<size_t>(c.axes)];
  }
  return c;
}

// Reads the strides of a tensor, and sets those of extents of 1 to the strides of a dense tensor.
// Returns whether the elements have no gaps, with the channels behind the batch or behind all other
// axes.
bool read_dense(const bp_tensor& t, DnnTensor& out) {
  const size_t ndim = t.ndim;
  std::array<size_t, 5> orders[2]{};  // The axes from the outermost to the innermost.
  for (size_t i = 0; i < ndim; ++i) orders[0][i] = i;
  orders[1][0] = 0;
  orders[1][ndim - 1] = 1;
  for (size_t i = 2; i < ndim; ++i) orders[1][i - 1] = i;
  for (const auto& order : orders) {
    int64_t expected = 1;
    bool is_dense = true;
    for (size_t place = ndim; place-- > 0;) {
      const size_t axis = order[place];
      is_dense = is_dense && (t.shape[axis] == 1 || t.strides[axis] == expected);
      out.shape[axis] = t.shape[axis];
      out.strides[axis] = expected;
      expected *= t.shape[axis];
    }
    if (is_dense) return true;
  }
  return false;
}

// Adds an axis of extent 1 in front of the spatial one, because cuDNN has no convolution over one
// axis.
void add_axis(DnnTensor& t) {
  t.shape = {t.shape[0], t.shape[1], 1, t.shape[2], 0};
  t.strides = {t.strides[0], t.strides[1], t.shape[3] * t.strides[2], t.strides[2], 0};
}

void add_axis(DnnProblem& p) {
  for (DnnTensor* t : {&p.x, &p.weight, &p.y}) add_axis(*t);
  for (auto* values : {&p.stride, &p.dilation}) *values = {1, (*values)[0], 1};
  for (auto* values : {&p.low, &p.high}) *values = {0, (*values)[0], 0};
  p.ndim = 4;
}

bool is_at_multiple_of_16(const bp_tensor* t) {
  return reinterpret_cast<uint64_t>(data<std::byte>(*t)) % 16 == 0;
}

bool is_aligned(const Convolution& c) {
  return is_at_multiple_of_16(c.x) && is_at_multiple_of_16(c.weight) && is_at_multiple_of_16(c.y);
}

}  // namespace

bool Convolution::is_empty() const {
  return element_count(*x) == 0 || element_count(*weight) == 0 || element_count(*y) == 0;
}

Convolution convolution_of(const bp_convolution_args& args) {
  Convolution c = describe(DnnDirection::kForward, args, args.x, args.weight, args.y);
  c.bias = args.bias;
  return c;
}

Convolution convolution_of(const bp_convolution_backward_input_args& args) {
  return describe(DnnDirection::kBackwardInput, args, args.grad_x, args.weight, args.grad_y);
}

Convolution convolution_of(const bp_convolution_backward_weight_args& args) {
  return describe(DnnDirection::kBackwardWeight, args, args.x, args.grad_weight, args.grad_y);
}

bp_reason refuse_library_convolution(const Convolution& c) {
  if (c.is_empty()) return "there are no products";
  if (c.low != c.high) return "cuDNN pads both ends of an axis alike";
  DnnTensor ignored;
  for (const bp_tensor* t : {c.x, c.weight, c.y}) {
    if (!read_dense(*t, ignored)) return "a tensor has gaps, or its axes another order";
  }
  return nullptr;
}

DnnProblem library_convolution(const Convolution& c, bool allows_tf32, bool is_aligned) {
  DnnProblem p;
  p.direction = c.direction;
  p.dtype = c.x->dtype;
  p.allows_tf32 = allows_tf32;
  p.adds = c.bias != nullptr;
  p.is_aligned = is_aligned;
  p.ndim = c.axes + 2;
  read_dense(*c.x, p.x);
  read_dense(*c.weight, p.weight);
  read_dense(*c.y, p.y);
  p.stride = c.stride;
  p.dilation = c.dilation;
  p.low = c.low;
  p.high = c.high;
  if (c.axes == 1) add_axis(p);
  return p;
}

namespace {

uint64_t wide_bytes(const bp_tensor& t) {
  return rounded_part(static_cast<uint64_t>(element_count(t)) * sizeof(float));
}

// Returns whether y would be rounded twice if cuDNN added its sums to the bias: on tensor cores it
// rounds them to 16 bits first (seen with cuDNN 9 on an H200). Then the convolution runs in f32 on
// wide copies. With TF32 that is exact: a number of 16 bits has no more digits than TF32 keeps.
bool needs_wide_sums(const Convolution& c) {
  return c.bias != nullptr && (c.y->dtype == BP_F16 || c.y->dtype == BP_BF16);
}

// Describes what cuDNN is asked for.
DnnProblem problem_of(const Convolution& c, bool allows_tf32, bool is_aligned) {
  if (!needs_wide_sums(c)) return library_convolution(c, allows_tf32, is_aligned);
  DnnProblem p = library_convolution(c, true, true);
  p.dtype = BP_F32;
  p.adds = false;
  return p;
}

uint64_t workspace_of(const Convolution& c, const DnnPlan& plan) {
  if (!needs_wide_sums(c)) return plan.workspace_size_bytes();
  return rounded_part(plan.workspace_size_bytes()) + wide_bytes(*c.x) + wide_bytes(*c.weight) +
         wide_bytes(*c.y);
}

bp_reason supports_convolution(const Convolution& c, bool allows_tf32, bp_launch_flags flags,
                               const Env& env) {
  if (allows_tf32 && !env.options().allows_tf32) return "option tf32 is not \"yes\"";
  if (allows_tf32 && (flags & BP_LAUNCH_STRICT_F32) != 0) return "the launch forbids TF32";
  if (const bp_reason reason = refuse_library_convolution(c)) return reason;
  DnnEngine* const engine = env.engines().dnn(env.device());
  if (engine == nullptr) return "cuDNN is missing; the log says why";
  const bool has_plan = engine->find(problem_of(c, allows_tf32, is_aligned(c))) != nullptr;
  return has_plan ? nullptr : "cuDNN has no deterministic engine for this shape";
}

bp_status run_library(const DnnPlan& plan, const void* x, const void* weight, const void* y,
                      Launch& launch) {
  using Id = DnnConvolutionTensor;
  const DnnAddress at[] = {{Id::kX, x}, {Id::kWeight, weight}, {Id::kY, y}};
  return run_dnn(plan, at, launch);
}

bp_status launch_wide(const Convolution& c, const DnnPlan& plan, Launch& launch) {
  std::byte* const x = launch.workspace() + rounded_part(plan.workspace_size_bytes());
  std::byte* const weight = x + wide_bytes(*c.x);
  std::byte* const y = weight + wide_bytes(*c.weight);
  bp_status status = launch_widening(*c.x, x, launch);
  if (status == BP_OK) status = launch_widening(*c.weight, weight, launch);
  if (status == BP_OK) status = run_library(plan, x, weight, y, launch);
  if (status != BP_OK) return status;
  DnnTensor dense;
  read_dense(*c.y, dense);
  return launch_bias_rounding(c, y, dense.strides.data(), launch);
}

bp_status launch_convolution(const Convolution& c, const DnnPlan& plan, Launch& launch) {
  check_workspace(launch.workspace_ref(), workspace_of(c, plan), "launch");
  if (needs_wide_sums(c)) return launch_wide(c, plan, launch);
  if (c.bias != nullptr) {  // The sums are added to it.
    const bp_status status = launch_bias_fill(c, launch);
    if (status != BP_OK) return status;
  }
  return run_library(plan, data<std::byte>(*c.x), data<std::byte>(*c.weight), data<std::byte>(*c.y),
                     launch);
}

template <typename Args, bool kAllowsTf32>
struct ConvolutionKernel {
  static bp_reason supports(const Args& args, bp_launch_flags flags, const Env& env) {
    return supports_convolution(convolution_of(args), kAllowsTf32, flags, env);
  }

  static uint64_t workspace(const Args& args, const Env& env) {
    const Convolution c = convolution_of(args);
    if (supports_convolution(c, kAllowsTf32, 0, env) != nullptr) return 0;
    return workspace_of(c, *find(c, env));
  }

  static bp_status launch(const Args& args, Launch& launch) {
    const Convolution c = convolution_of(args);
    if (const bp_reason reason = supports_convolution(c, kAllowsTf32, launch.flags(), launch)) {
      return launch.refuse(BP_UNSUPPORTED, reason);
    }
    return launch_convolution(c, *find(c, launch), launch);
  }

  // Launches may have buffers of any alignment, so the plan has a choice for aligned and one for
  // unaligned buffers. It may use engines that are compiled for the shape.
  class Plan : public LibraryPlan {
   public:
    Plan(const Args& args, const Env& env) {
      const Convolution c = convolution_of(args);
      if (const bp_reason reason = supports_convolution(c, kAllowsTf32, 0, env)) {
        refuse_plan(reason);
      }
      aligned_ = choose(c, true, env);
      other_ = choose(c, false, env);
      if (aligned_ == nullptr || other_ == nullptr) {
        refuse_plan("cuDNN does not take every alignment");
      }
      workspace_size_bytes_ = std::max(workspace_of(c, *aligned_), workspace_of(c, *other_));
    }

    const char* algorithm() const { return "cuDNN, by its heuristics"; }

    bp_status launch(const Args& args, Launch& launch) const {
      const Convolution c = convolution_of(args);
      return launch_convolution(c, is_aligned(c) ? *aligned_ : *other_, launch);
    }

   private:
    static std::shared_ptr<const DnnPlan> choose(const Convolution& c, bool is_aligned,
                                                 const Env& env) {
      DnnProblem problem = problem_of(c, kAllowsTf32, is_aligned);
      problem.may_compile = true;
      return env.engines().dnn(env.device())->find(problem);
    }
    std::shared_ptr<const DnnPlan> aligned_, other_;
  };

 private:
  static std::shared_ptr<const DnnPlan> find(const Convolution& c, const Env& env) {
    return env.engines().dnn(env.device())->find(problem_of(c, kAllowsTf32, is_aligned(c)));
  }
};

template <typename Args>
bp_status direct_launch(const Args& args, Launch& launch) {
  return launch_convolution_direct(convolution_of(args), launch);
}

// One dtype for all: what cuDNN takes.
constexpr bp_dtype kNarrowDtypes[] = {BP_F16, BP_F16, BP_F16, BP_BF16, BP_BF16, BP_BF16};

template <typename Args>
constexpr bp_kernel library_kernel(const char* name, uint32_t op) {
  return make_library_kernel<Args, ConvolutionKernel<Args, false>>(
      product_row(name, op, kWideLibraryDtypes, 1));
}
template <typename Args>
constexpr bp_kernel narrow_kernel(const char* name, uint32_t op) {
  return make_library_kernel<Args, ConvolutionKernel<Args, false>>(
      product_row(name, op, kNarrowDtypes, 1, &kTensorCoreNumerics));
}
template <typename Args>
constexpr bp_kernel tf32_kernel(const char* name, uint32_t op) {
  return make_library_kernel<Args, ConvolutionKernel<Args, true>>(
      product_row(name, op, kTf32Dtypes, 2, &kTf32Numerics));
}
template <typename Args>
constexpr bp_kernel direct_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, direct_launch<Args>>(product_row(name, op, kProductDtypes, 0));
}

using Forward = bp_convolution_args;
using BackwardInput = bp_convolution_backward_input_args;
using BackwardWeight = bp_convolution_backward_weight_args;

}  // namespace

constinit const bp_kernel kConvolutionLibraryTf32 =
    tf32_kernel<Forward>("convolution.cudnn_tf32", BP_OP_CONVOLUTION);
constinit const bp_kernel kConvolutionLibrary =
    library_kernel<Forward>("convolution.cudnn", BP_OP_CONVOLUTION);
constinit const bp_kernel kConvolutionLibraryNarrow =
    narrow_kernel<Forward>("convolution.cudnn_narrow", BP_OP_CONVOLUTION);
constinit const bp_kernel kConvolutionDirect =
    direct_kernel<Forward>("convolution.direct", BP_OP_CONVOLUTION);
constinit const bp_kernel kConvolutionBackwardInputLibraryTf32 = tf32_kernel<BackwardInput>(
    "convolution_backward_input.cudnn_tf32", BP_OP_CONVOLUTION_BACKWARD_INPUT);
constinit const bp_kernel kConvolutionBackwardInputLibrary = library_kernel<BackwardInput>(
    "convolution_backward_input.cudnn", BP_OP_CONVOLUTION_BACKWARD_INPUT);
constinit const bp_kernel kConvolutionBackwardInputLibraryNarrow = narrow_kernel<BackwardInput>(
    "convolution_backward_input.cudnn_narrow", BP_OP_CONVOLUTION_BACKWARD_INPUT);
constinit const bp_kernel kConvolutionBackwardInputDirect = direct_kernel<BackwardInput>(
    "convolution_backward_input.direct", BP_OP_CONVOLUTION_BACKWARD_INPUT);
constinit const bp_kernel kConvolutionBackwardWeightLibraryTf32 = tf32_kernel<BackwardWeight>(
    "convolution_backward_weight.cudnn_tf32", BP_OP_CONVOLUTION_BACKWARD_WEIGHT);
constinit const bp_kernel kConvolutionBackwardWeightLibrary = library_kernel<BackwardWeight>(
    "convolution_backward_weight.cudnn", BP_OP_CONVOLUTION_BACKWARD_WEIGHT);
constinit const bp_kernel kConvolutionBackwardWeightLibraryNarrow = narrow_kernel<BackwardWeight>(
    "convolution_backward_weight.cudnn_narrow", BP_OP_CONVOLUTION_BACKWARD_WEIGHT);
constinit const bp_kernel kConvolutionBackwardWeightDirect = direct_kernel<BackwardWeight>(
    "convolution_backward_weight.direct", BP_OP_CONVOLUTION_BACKWARD_WEIGHT);

}  // namespace bp::cuda
