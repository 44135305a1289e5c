// The optimizer steps, foreach_scale and scale_and_check_finite submit a dispatch for each tensor
// of their lists (optimizer.comp).
#include <algorithm>
#include <array>
#include <bit>

#include "backends/vulkan/kernels/bias_correction.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

enum OptimizerOp : uint32_t {
  kSgd = 0,
  kAdamw = 1,
  kScaleAndCheck = 2,
  kAdam = 3,
  kLion = 4,
  kScale = 5
};

struct OptimizerRecord {
  uint64_t tensors[4];
  uint64_t found;
  uint64_t lr_address, step_address;
  uint64_t count;
  int64_t step;
  float lr;
  float momentum, kept_of_grad, weight_decay;
  float beta1, rest1, beta2, rest2;
  float correction1, correction2;
  float eps;
  uint32_t reserved;
  uint64_t fraction1, fraction2;
  uint32_t extents[BP_MAX_RANK];
  int64_t strides[4][BP_MAX_RANK];
};

// A dispatch on one tensor of each list. All tensors except the gradient are written.
struct Step {
  OptimizerOp op;
  std::initializer_list<const bp_tensor*> tensors;
  bool has_buffer = false, nesterov = false;
  const bp_tensor *lr = nullptr, *step = nullptr, *found = nullptr;
};

bp_status submit_step(Launch& launch, const Step& step, OptimizerRecord record) {
  const Walk walk = make_walk(step.tensors);
  if (walk.count == 0) return BP_OK;
  if (walk.count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED, "optimizer: a tensor has more than 2^31 elements");
  }
  record.count = static_cast<uint64_t>(walk.count);
  record.lr_address = address_of(launch, step.lr);
  record.step_address = address_of(launch, step.step);
  record.found = address_of(launch, step.found);
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  Ranges reads(launch, {step.lr, step.step}), writes(launch, {step.found});
  size_t k = 0;
  for (const bp_tensor* t : step.tensors) {
    record.tensors[k] = launch.device_address(*t);
    for (size_t i = 0; i < walk.rank; ++i) {
      record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
      record.strides[k][i] = walk.strides[k][i];
    }
    (k++ == 1 ? reads : writes).add(t);
  }
  const std::array<uint32_t, 6> constants = {local_size(launch),
                                             step.op,
                                             one_of(kF32Dtypes, (*step.tensors.begin())->dtype),
                                             std::max(walk.rank, 1u),
                                             step.has_buffer ? 1u : 0u,
                                             step.nesterov ? 1u : 0u};
  return submit(launch, kOptimizerModule, constants, record,
                ceil_divide(record.count, local_size(launch)), {reads, writes});
}

double value_of(const bp_tensor* tensor, const bp_scalar& scalar) {
  return tensor != nullptr ? 0.0 : std::bit_cast<double>(convert_scalar(scalar, BP_F64));
}

bp_status sgd_launch(const bp_sgd_step_args& args, Launch& launch) {
  OptimizerRecord record{};
  record.lr = static_cast<float>(value_of(args.lr, args.lr_scalar));
  if (args.step == nullptr) {
    record.step = static_cast<int64_t>(convert_scalar(args.step_scalar, BP_I64));
  }
  record.momentum = static_cast<float>(args.momentum);
  record.kept_of_grad = static_cast<float>(1.0 - args.dampening);
  record.weight_decay = static_cast<float>(args.weight_decay);
  const bool has_buffer = args.momentum_buffers_count > 0;
  for (uint64_t i = 0; i < args.params_count; ++i) {
    const bp_tensor *p = args.params[i], *g = args.grads[i];
    const Step with_buffer{.op = kSgd,
                           .tensors = {p, g, has_buffer ? args.momentum_buffers[i] : p},
                           .has_buffer = has_buffer,
                           .nesterov = args.nesterov != 0,
                           .lr = args.lr,
                           .step = args.step};
    const bp_status status = submit_step(launch, with_buffer, record);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

template <typename Args>
void set_betas(OptimizerRecord& record, const Args& args) {
  record.beta1 = static_cast<float>(args.beta1);
  record.rest1 = static_cast<float>(1.0 - args.beta1);
  record.beta2 = static_cast<float>(args.beta2);
  record.rest2 = static_cast<float>(1.0 - args.beta2);
  record.weight_decay = static_cast<float>(args.weight_decay);
}

template <OptimizerOp kOp, typename Args>
bp_status adam_launch(const Args& args, Launch& launch) {
  OptimizerRecord record{};
  record.lr = static_cast<float>(value_of(args.lr, args.lr_scalar));
  record.fraction1 = corrections::fraction_of(args.beta1);
  record.fraction2 = corrections::fraction_of(args.beta2);
  if (args.step == nullptr) {
    const uint64_t step = convert_scalar(args.step_scalar, BP_I64);
    record.correction1 = corrections::correction_of(record.fraction1, step);
    record.correction2 = corrections::correction_of(record.fraction2, step);
  }
  set_betas(record, args);
  record.eps = static_cast<float>(args.eps);
  for (uint64_t i = 0; i < args.params_count; ++i) {
    const Step step{.op = kOp,
                    .tensors = {args.params[i], args.grads[i], args.exp_avg[i], args.exp_avg_sq[i]},
                    .lr = args.lr,
                    .step = args.step};
    const bp_status status = submit_step(launch, step, record);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

bp_status lion_launch(const bp_lion_step_args& args, Launch& launch) {
  OptimizerRecord record{};
  record.lr = static_cast<float>(value_of(args.lr, args.lr_scalar));
  set_betas(record, args);
  for (uint64_t i = 0; i < args.params_count; ++i) {
    const Step step{
        .op = kLion, .tensors = {args.params[i], args.grads[i], args.exp_avg[i]}, .lr = args.lr};
    const bp_status status = submit_step(launch, step, record);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

// Scales the tensors. If the op checks them, it sets `found`.
template <typename Args>
bp_status scale_launch(const Args& args, Launch& launch) {
  OptimizerRecord record{};
  record.lr = static_cast<float>(value_of(args.scale, args.scale_scalar));
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    Step step{.op = kScale, .tensors = {args.xs[i]}, .lr = args.scale};
    if constexpr (requires { args.found; }) {
      step.op = kScaleAndCheck;
      step.found = args.found;
    }
    const bp_status status = submit_step(launch, step, record);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

// The host casts a rate of f32.
constexpr bp_dtype kRate[] = {BP_F64};
constexpr auto kDtypes = pairs_of(kF32Dtypes, kRate);
constexpr auto kFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

}  // namespace

constinit const bp_kernel kSgdStep = make_kernel<bp_sgd_step_args, sgd_launch>(
    kernel_row("sgd_step", BP_OP_SGD_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kAdamStep =
    make_kernel<bp_adam_step_args, adam_launch<kAdam, bp_adam_step_args>>(
        kernel_row("adam_step", BP_OP_ADAM_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kAdamwStep =
    make_kernel<bp_adamw_step_args, adam_launch<kAdamw, bp_adamw_step_args>>(
        kernel_row("adamw_step", BP_OP_ADAMW_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kLionStep = make_kernel<bp_lion_step_args, lion_launch>(
    kernel_row("lion_step", BP_OP_LION_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kForeachScale =
    make_kernel<bp_foreach_scale_args, scale_launch<bp_foreach_scale_args>>(
        kernel_row("foreach_scale", BP_OP_FOREACH_SCALE, {kDtypes, 2}, kFlags));
constinit const bp_kernel kScaleAndCheckFinite =
    make_kernel<bp_scale_and_check_finite_args, scale_launch<bp_scale_and_check_finite_args>>(
        kernel_row("scale_and_check_finite", BP_OP_SCALE_AND_CHECK_FINITE, {kDtypes, 2}, kFlags));

}  // namespace bp::vulkan
