// sgd_step, adam_step, adamw_step, lion_step, foreach_scale and scale_and_check_finite over lists
// of tensors, for every layout: one pass over memory (multi_tensor.cuh).
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/multi_tensor.cuh"

namespace bp::cuda {
namespace {

struct NoOutcome {};

// Operands: the parameter, its gradient, and the momentum buffer if there is one.
template <bool kHasBuffer>
struct Sgd {
  static constexpr int kOperands = kHasBuffer ? 3 : 2;
  static constexpr unsigned kWritten = kHasBuffer ? 0b101 : 0b001;
  static constexpr bool kChecksStored = false;
  using Outcome = NoOutcome;

  struct Ready {
    double lr, weight_decay, momentum, share;
    bool is_first, nesterov;
  };

  ScalarArgument lr, step;
  double momentum, dampening, weight_decay;
  bool nesterov;

  __device__ Ready prepare() const {
    return {lr.get<double>(),         weight_decay, momentum, 1.0 - dampening,
            step.get<int64_t>() == 1, nesterov};
  }

  template <typename C>
  __device__ static void apply(const Ready& r, C (&values)[kOperands], NoOutcome&) {
    C update = values[1] + static_cast<C>(r.weight_decay) * values[0];
    if constexpr (kHasBuffer) {
      const C decayed = static_cast<C>(r.momentum) * values[2] + static_cast<C>(r.share) * update;
      const C moved = r.is_first ? update : decayed;
      values[2] = moved;
      update = r.nesterov ? update + static_cast<C>(r.momentum) * moved : moved;
    }
    values[0] -= static_cast<C>(r.lr) * update;
  }
  __device__ void finish(const NoOutcome&) const {}
};

// Operands: the parameter, its gradient, exp_avg and exp_avg_sq. If weight decay is decoupled, it
// acts on the parameter, else it is a part of the gradient.
template <bool kIsDecoupled>
struct Adam {
  static constexpr int kOperands = 4;
  static constexpr unsigned kWritten = 0b1101;
  static constexpr bool kChecksStored = false;
  using Outcome = NoOutcome;

  struct Ready {
    double decay, beta1, share1, beta2, share2, lr, root_scale, eps;
  };

  ScalarArgument lr, step;
  double beta1, beta2, eps, weight_decay;

  __device__ Ready prepare() const {
    const double rate = lr.get<double>(), count = static_cast<double>(step.get<int64_t>());
    const double correction1 = 1.0 - pow(beta1, count), correction2 = 1.0 - pow(beta2, count);
    const double decay = kIsDecoupled ? rate * weight_decay : weight_decay;
    return {
        decay, beta1, 1.0 - beta1, beta2, 1.0 - beta2, rate / correction1, 1.0 / sqrt(correction2),
        eps};
  }

  template <typename C>
  __device__ static void apply(const Ready& r, C (&values)[kOperands], NoOutcome&) {
    const C decay = static_cast<C>(r.decay), param = values[0];
    const C grad = kIsDecoupled ? values[1] : values[1] + decay * param;
    const C m = static_cast<C>(r.beta1) * values[2] + static_cast<C>(r.share1) * grad;
    const C v = static_cast<C>(r.beta2) * values[3] + static_cast<C>(r.share2) * grad * grad;
    values[2] = m;
    values[3] = v;
    const C root = sqrt(v) * static_cast<C>(r.root_scale) + static_cast<C>(r.eps);
    values[0] = (kIsDecoupled ? param - decay * param : param) - static_cast<C>(r.lr) * m / root;
  }
  __device__ void finish(const NoOutcome&) const {}
};

// Operands: the parameter, its gradient and exp_avg.
struct Lion {
  static constexpr int kOperands = 3;
  static constexpr unsigned kWritten = 0b101;
  static constexpr bool kChecksStored = false;
  using Outcome = NoOutcome;

  struct Ready {
    double lr, beta1, share1, beta2, share2, weight_decay;
  };

  ScalarArgument lr;
  double beta1, beta2, weight_decay;

  __device__ Ready prepare() const {
    return {lr.get<double>(), beta1, 1.0 - beta1, beta2, 1.0 - beta2, weight_decay};
  }

  template <typename C>
  __device__ static void apply(const Ready& r, C (&values)[kOperands], NoOutcome&) {
    const C param = values[0], grad = values[1], average = values[2];
    const C mixed = static_cast<C>(r.beta1) * average + static_cast<C>(r.share1) * grad;
    const C sign = mixed > 0 ? C{1} : mixed < 0 ? C{-1} : mixed;  // Of 0 it is 0, of NaN NaN.
    values[0] = param - static_cast<C>(r.lr) * (sign + static_cast<C>(r.weight_decay) * param);
    values[2] = static_cast<C>(r.beta2) * average + static_cast<C>(r.share2) * grad;
  }
  __device__ void finish(const NoOutcome&) const {}
};

struct Scale {
  static constexpr int kOperands = 1;
  static constexpr unsigned kWritten = 0b1;
  static constexpr bool kChecksStored = false;
  using Outcome = NoOutcome;

  struct Ready {
    double scale;
  };

  ScalarArgument scale;

  __device__ Ready prepare() const { return {scale.get<double>()}; }
  template <typename C>
  __device__ static void apply(const Ready& r, C (&values)[1], NoOutcome&) {
    values[0] *= static_cast<C>(r.scale);
  }
  __device__ void finish(const NoOutcome&) const {}
};

// Scales elements and checks the stored values, because a 16-bit float may overflow when the
// product in f32 does not.
struct ScaleAndCheck {
  static constexpr int kOperands = 1;
  static constexpr unsigned kWritten = 0b1;
  static constexpr bool kChecksStored = true;

  struct Ready {
    double scale;
  };
  struct Outcome {
    bool is_found = false;
  };

  ScalarArgument scale;
  float* found;

  __device__ Ready prepare() const { return {scale.get<double>()}; }
  template <typename C>
  __device__ static void check(C value, Outcome& outcome) {
    outcome.is_found = outcome.is_found || !isfinite(value);
  }
  template <typename C>
  __device__ static void apply(const Ready& r, C (&values)[1], Outcome& outcome) {
    check(values[0], outcome);
    values[0] *= static_cast<C>(r.scale);
  }
  __device__ void finish(const Outcome& outcome) const {
    if (outcome.is_found) store_same(found, 1.0f);
  }
};

template <bool kHasBuffer>
bp_status submit_sgd(const bp_sgd_step_args& args, Launch& launch) {
  const Sgd<kHasBuffer> method = {{args.lr, args.lr_scalar, BP_F64},
                                  {args.step, args.step_scalar, BP_I64},
                                  args.momentum,
                                  args.dampening,
                                  args.weight_decay,
                                  args.nesterov != 0};
  return submit_updates(launch, method, args.params_count, args.params, [&](uint64_t i) {
    const bp_tensor& p = *args.params[i];
    if constexpr (kHasBuffer) {
      return make_loop(p.ndim, p.shape,
                       {operand(&p), operand(args.grads[i]), operand(args.momentum_buffers[i])});
    } else {
      return make_loop(p.ndim, p.shape, {operand(&p), operand(args.grads[i])});
    }
  });
}

bp_status sgd_launch(const bp_sgd_step_args& args, Launch& launch) {
  return args.momentum_buffers_count > 0 ? submit_sgd<true>(args, launch)
                                         : submit_sgd<false>(args, launch);
}

template <bool kIsDecoupled, typename Args>
bp_status adam_launch(const Args& args, Launch& launch) {
  const Adam<kIsDecoupled> method = {{args.lr, args.lr_scalar, BP_F64},
                                     {args.step, args.step_scalar, BP_I64},
                                     args.beta1,
                                     args.beta2,
                                     args.eps,
                                     args.weight_decay};
  return submit_updates(launch, method, args.params_count, args.params, [&](uint64_t i) {
    const bp_tensor& p = *args.params[i];
    return make_loop(p.ndim, p.shape,
                     {operand(&p), operand(args.grads[i]), operand(args.exp_avg[i]),
                      operand(args.exp_avg_sq[i])});
  });
}

bp_status lion_launch(const bp_lion_step_args& args, Launch& launch) {
  const Lion method = {
      {args.lr, args.lr_scalar, BP_F64}, args.beta1, args.beta2, args.weight_decay};
  return submit_updates(launch, method, args.params_count, args.params, [&](uint64_t i) {
    const bp_tensor& p = *args.params[i];
    return make_loop(p.ndim, p.shape,
                     {operand(&p), operand(args.grads[i]), operand(args.exp_avg[i])});
  });
}

template <class Method, typename Args>
bp_status submit_scale(Launch& launch, const Method& method, const Args& args) {
  return submit_updates(launch, method, args.xs_count, args.xs, [&](uint64_t i) {
    return make_loop(args.xs[i]->ndim, args.xs[i]->shape, {operand(args.xs[i])});
  });
}

bp_status foreach_launch(const bp_foreach_scale_args& args, Launch& launch) {
  return submit_scale(launch, Scale{{args.scale, args.scale_scalar, BP_F64}}, args);
}

bp_status check_launch(const bp_scale_and_check_finite_args& args, Launch& launch) {
  return submit_scale(
      launch, ScaleAndCheck{{args.scale, args.scale_scalar, BP_F64}, data<float>(*args.found)},
      args);
}

// The host casts a rate of f32.
constexpr bp_dtype kRate[] = {BP_F64};
constexpr auto kDtypes = pairs_of(kFloatDtypes, kRate);
constexpr auto kFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

}  // namespace

constinit const bp_kernel kSgdStep = make_kernel<bp_sgd_step_args, sgd_launch>(
    kernel_row("sgd_step", BP_OP_SGD_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kAdamStep =
    make_kernel<bp_adam_step_args, adam_launch<false, bp_adam_step_args>>(
        kernel_row("adam_step", BP_OP_ADAM_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kAdamwStep =
    make_kernel<bp_adamw_step_args, adam_launch<true, bp_adamw_step_args>>(
        kernel_row("adamw_step", BP_OP_ADAMW_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kLionStep = make_kernel<bp_lion_step_args, lion_launch>(
    kernel_row("lion_step", BP_OP_LION_STEP, {kDtypes, 2}, kFlags));
constinit const bp_kernel kForeachScale = make_kernel<bp_foreach_scale_args, foreach_launch>(
    kernel_row("foreach_scale", BP_OP_FOREACH_SCALE, {kDtypes, 2}, kFlags));
constinit const bp_kernel kScaleAndCheckFinite =
    make_kernel<bp_scale_and_check_finite_args, check_launch>(
        kernel_row("scale_and_check_finite", BP_OP_SCALE_AND_CHECK_FINITE, {kDtypes, 2}, kFlags));

}  // namespace bp::cuda
