// Mutants of the ops of training: steps over lists of tensors, losses, norms of channels, and sums
// with a product. Each makes a mistake that kernels of its op may make.
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/mistakes.hpp"

namespace bp::mutants {
namespace {

// ---- Steps over lists of tensors ----------------------------------------------------------------

// Returns the rate of a step, which is a number of the frame or a tensor.
double rate_of(const Call& call, const bp_tensor* lr, const bp_scalar& scalar) {
  if (lr != nullptr) return Values(call, *lr)[0];
  return std::bit_cast<double>(scalar.bits);
}

// Does not correct the averages of the first steps, which are too small: at a late step there is
// nothing to correct.
bp_status correct_nothing(const Call& call, const bp_adam_step_args& args) {
  bp_adam_step_args frame = args;
  frame.step = nullptr;
  frame.step_scalar.dtype = BP_I64;
  frame.step_scalar.bits = uint64_t{1} << 40;
  return call.run(&frame);
}

// Lets the weight decay act on the parameter, as adamw_step does.
bp_status decay_the_parameter(const Call& call, const bp_adam_step_args& args) {
  bp_adam_step_args frame = args;
  frame.weight_decay = 0;
  const double kept = 1 - rate_of(call, args.lr, args.lr_scalar) * args.weight_decay;
  for (const bp_tensor* const tensor : std::span(args.params, args.params_count)) {
    Values param(call, *tensor);
    for (size_t i = 0; i < param.size(); ++i) param.set(i, param[i] * kept);
    if (const bp_status status = param.write(); status != BP_OK) return status;
  }
  return call.run(&frame);
}

// Takes 1 for the sign of 0.
bp_status step_at_zero(const Call& call, const bp_lion_step_args& args) {
  const double lr = rate_of(call, args.lr, args.lr_scalar);
  std::vector<std::vector<bool>> is_zero;
  for (uint64_t t = 0; t < args.params_count; ++t) {
    const Values grad(call, *args.grads[t]), average(call, *args.exp_avg[t]);
    std::vector<bool>& own = is_zero.emplace_back();
    for (size_t i = 0; i < grad.size(); ++i) own.push_back(grad[i] == 0 && average[i] == 0);
  }
  if (const bp_status status = call.run(&args); status != BP_OK) return status;
  for (uint64_t t = 0; t < args.params_count; ++t) {
    Values param(call, *args.params[t]);
    for (size_t i = 0; i < param.size(); ++i) {
      if (is_zero[t][i]) param.set(i, param[i] - lr);
    }
    if (const bp_status status = param.write(); status != BP_OK) return status;
  }
  return BP_OK;
}

// Takes the sign of the average that it has just updated.
bp_status update_average_first(const Call& call, const bp_lion_step_args& args) {
  bp_lion_step_args frame = args;
  frame.beta1 = frame.beta2;
  return call.run(&frame);
}

// Leaves the last tensor of several out.
template <typename Args>
bp_status forget_the_last(const Call& call, const Args& args) {
  Args frame = args;
  if (frame.xs_count > 1) --frame.xs_count;
  return call.run(&frame);
}

// Adds squares in f32, where those of large and of small numbers do not fit.
bp_status square_in_f32(const Call& call, const bp_grad_norm_args& args) {
  if (const bp_status status = call.run(&args); status != BP_OK) return status;
  float total = 0;
  for (const bp_tensor* const tensor : std::span(args.xs, args.xs_count)) {
    const Values x(call, *tensor);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto element = static_cast<float>(x[i]);
      total += element * element;
    }
  }
  Values y(call, *args.y);
  y.set(0, std::sqrt(total));
  return y.write();
}

// ---- Losses -------------------------------------------------------------------------------------

// Multiplies a target of 0 by its logarithm.
bp_status take_log_of_zero(const Call& call, const bp_kl_div_loss_args& args) {
  const Values target(call, *args.target);
  if (const bp_status status = first_failure({&target}); status != BP_OK) return status;
  if (const bp_status status = call.run(&args); status != BP_OK) return status;
  Values y(call, *args.y);
  const bool is_each = args.reduction == BP_KL_DIV_LOSS_REDUCTION_NONE;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0) y.set(is_each ? i : 0, NAN);
  }
  return y.write();
}

// Computes the loss of each element by the formula as it stands, in which exponentials overflow.
bp_status exponentiate_logits(const Call& call, const bp_bce_with_logits_loss_args& args) {
  const bool is_plain = args.weight == nullptr && args.pos_weight == nullptr &&
                        args.reduction == BP_BCE_WITH_LOGITS_LOSS_REDUCTION_NONE &&
                        args.x->dtype == BP_F32;
  if (!is_plain) return call.run(&args);
  const Values x(call, *args.x), target(call, *args.target);
  Values y(call, *args.y);
  if (const bp_status status = first_failure({&x, &target, &y}); status != BP_OK) return status;
  for (size_t i = 0; i < y.size(); ++i) {
    const auto logit = static_cast<float>(x[i]), p = static_cast<float>(target[i]);
    y.set(i, p * std::log(1 + std::exp(-logit)) + (1 - p) * std::log(1 + std::exp(logit)));
  }
  return y.write();
}

// Multiplies all results by `factor`.
bp_status scale_results(const Call& call, const void* args, const bp_tensor& output,
                        double factor) {
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  Values y(call, output);
  for (size_t i = 0; i < y.size(); ++i) y.set(i, y[i] * factor);
  return y.write();
}

// Gives smooth_l1_loss of the same width, which is another multiple of the same curve.
bp_status divide_by_delta(const Call& call, const bp_huber_loss_args& args) {
  return scale_results(call, &args, *args.y, 1 / args.delta);
}

// Takes the mean over the batch, and adds the other axes.
bp_status average_the_batch(const Call& call, const bp_mse_loss_args& args) {
  const int64_t count = View(*args.x).element_count();
  const bool is_mean = args.reduction == BP_MSE_LOSS_REDUCTION_MEAN && args.x->ndim > 1;
  if (!is_mean || count == 0) return call.run(&args);
  const auto batch = static_cast<double>(args.x->shape[0]);
  return scale_results(call, &args, *args.y, static_cast<double>(count) / batch);
}

// Counts rows that are ignored in the mean.
bp_status count_ignored(const Call& call, const bp_nll_loss_args& args) {
  if (args.reduction != BP_NLL_LOSS_REDUCTION_MEAN) return call.run(&args);
  const Values target(call, *args.target);
  double kept = 0;
  for (size_t i = 0; i < target.size(); ++i) {
    kept += target[i] != static_cast<double>(args.ignore_index);
  }
  return scale_results(call, &args, *args.y, kept / static_cast<double>(target.size()));
}

// ---- Norms of channels --------------------------------------------------------------------------

// Takes the gamma whose number is that of the group, and not that of the channel.
bp_status scale_by_group(const Call& call, const bp_group_norm_args& args) {
  if (args.gamma == nullptr) return call.run(&args);
  const auto width = static_cast<size_t>(args.x->shape[1] / args.groups);
  const auto edit = [=](Values& gamma) {
    for (size_t i = gamma.size(); i-- > 0;) gamma.set(i, gamma[i / width]);
  };
  return with_edited(call, *args.gamma, edit, [&](const bp_tensor* gamma) {
    bp_group_norm_args frame = args;
    frame.gamma = gamma;
    return call.run(&frame);
  });
}

double elements_of_channel(const bp_tensor& x) {
  return static_cast<double>(View(x).element_count()) / static_cast<double>(x.shape[1]);
}

// Gives the variance of a population, which is what running statistics have.
bp_status give_unbiased(const Call& call, const bp_batch_norm_training_args& args) {
  if (const bp_status status = call.run(&args); status != BP_OK) return status;
  if (args.variance == nullptr || args.x->shape[1] == 0) return BP_OK;
  const double n = elements_of_channel(*args.x);
  Values variance(call, *args.variance);
  for (size_t i = 0; i < variance.size() && n > 1; ++i) variance.set(i, variance[i] * n / (n - 1));
  return variance.write();
}

// Takes the mean of each group from the group before it.
bp_status shift_means(const Call& call, const bp_group_norm_backward_args& args) {
  const auto edit = [](Values& mean) {
    for (size_t i = mean.size(); i-- > 1;) mean.set(i, mean[i - 1]);
  };
  return with_edited(call, *args.mean, edit, [&](const bp_tensor* mean) {
    bp_group_norm_backward_args frame = args;
    frame.mean = mean;
    return call.run(&frame);
  });
}

// Takes the variance of a population, which is what running statistics have.
bp_status take_unbiased(const Call& call, const bp_batch_norm_training_backward_args& args) {
  if (args.x->shape[1] == 0) return call.run(&args);
  const double n = elements_of_channel(*args.x);
  const auto edit = [=](Values& variance) {
    for (size_t i = 0; i < variance.size() && n > 1; ++i) {
      variance.set(i, variance[i] * n / (n - 1));
    }
  };
  return with_edited(call, *args.variance, edit, [&](const bp_tensor* variance) {
    bp_batch_norm_training_backward_args frame = args;
    frame.variance = variance;
    return call.run(&frame);
  });
}

// Leaves eps out, as if the variance had it already.
bp_status forget_eps(const Call& call, const bp_batch_norm_inference_args& args) {
  bp_batch_norm_inference_args frame = args;
  frame.eps = 0;
  return call.run(&frame);
}

// ---- Sums with a product ------------------------------------------------------------------------

// Computes y from a, b and c, element by element, in this dtype alone and without inline numbers.
template <typename Args, typename Function>
bp_status combine(const Call& call, const Args& args, bp_dtype dtype, Function function) {
  if (args.c == nullptr || args.y->dtype != dtype) return call.run(&args);
  const Values a(call, *args.a), b(call, *args.b), c(call, *args.c);
  Values y(call, *args.y);
  if (const bp_status status = first_failure({&a, &b, &c, &y}); status != BP_OK) return status;
  for (size_t i = 0; i < y.size(); ++i) y.set(i, function(a[i], b[i], c[i]));
  return y.write();
}

// Rounds the product to f16 before it is added.
bp_status round_the_product(const Call& call, const bp_addcmul_args& args) {
  return combine(call, args, BP_F16,
                 [](double a, double b, double c) { return a + rounded(b * c, 11); });
}

// Multiplies by the reciprocal of c, which overflows where the quotient does not.
bp_status multiply_by_reciprocal(const Call& call, const bp_addcdiv_args& args) {
  return combine(call, args, BP_F32, [](double a, double b, double c) -> double {
    const float reciprocal = 1 / static_cast<float>(c);
    return static_cast<float>(a) + static_cast<float>(b) * reciprocal;
  });
}

constexpr Mistake kMistakes[] = {
    {"adam_correction", BP_OP_ADAM_STEP, on_frame<correct_nothing>},
    {"adam_decay", BP_OP_ADAM_STEP, on_frame<decay_the_parameter>},
    {"lion_zero", BP_OP_LION_STEP, on_frame<step_at_zero>},
    {"lion_order", BP_OP_LION_STEP, on_frame<update_average_first>},
    {"foreach_scale", BP_OP_FOREACH_SCALE, on_frame<forget_the_last<bp_foreach_scale_args>>},
    {"grad_norm", BP_OP_GRAD_NORM, on_frame<forget_the_last<bp_grad_norm_args>>},
    {"grad_norm_f32", BP_OP_GRAD_NORM, on_frame<square_in_f32>},
    {"kl_div_loss", BP_OP_KL_DIV_LOSS, on_frame<take_log_of_zero>},
    {"bce_with_logits_loss", BP_OP_BCE_WITH_LOGITS_LOSS, on_frame<exponentiate_logits>},
    {"huber_loss", BP_OP_HUBER_LOSS, on_frame<divide_by_delta>},
    {"mse_loss", BP_OP_MSE_LOSS, on_frame<average_the_batch>},
    {"nll_loss", BP_OP_NLL_LOSS, on_frame<count_ignored>},
    {"group_norm", BP_OP_GROUP_NORM, on_frame<scale_by_group>},
    {"group_norm_backward", BP_OP_GROUP_NORM_BACKWARD, on_frame<shift_means>},
    {"batch_norm_training", BP_OP_BATCH_NORM_TRAINING, on_frame<give_unbiased>},
    {"batch_norm_training_backward", BP_OP_BATCH_NORM_TRAINING_BACKWARD, on_frame<take_unbiased>},
    {"batch_norm_inference", BP_OP_BATCH_NORM_INFERENCE, on_frame<forget_eps>},
    {"addcmul", BP_OP_ADDCMUL, on_frame<round_the_product>},
    {"addcdiv", BP_OP_ADDCDIV, on_frame<multiply_by_reciprocal>},
};

// 89: steps, judges, normalizes or combines wrongly.
constexpr Mutant kTable[] = {
    {.id = "89",
     .ops = {},
     .launch = make_mistake<kMistakes>,
     .extra_workspace_bytes = kCopyBytes,
     .replaces = has_row<kMistakes>},
};

}  // namespace

std::span<const Mutant> training_mutants() { return kTable; }

}  // namespace bp::mutants
