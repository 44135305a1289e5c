// neg, abs, exp, log, sqrt, relu and relu_backward, for tensors of every layout.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"

namespace bp::cuda {
namespace {

// Integers wrap: they are computed without a sign.
struct Neg {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::make_unsigned_t<T>{0} - static_cast<std::make_unsigned_t<T>>(x));
    } else {
      return narrow<T>(-widen(x));
    }
  }
};

struct Abs {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return x < 0 ? Neg()(x) : x;
    } else {
      return narrow<T>(fabs(widen(x)));
    }
  }
};

struct Exp {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return narrow<T>(exp(widen(x)));
  }
};

struct Log {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return narrow<T>(log(widen(x)));
  }
};

struct Sqrt {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return narrow<T>(sqrt(widen(x)));
  }
};

// A comparison with NaN is false: it stays.
struct Relu {
  template <typename T>
  __host__ __device__ T operator()(T x) const {
    return widen(x) < 0 ? T(0) : x;
  }
};

struct ReluBackward {
  template <typename T>
  __host__ __device__ T operator()(T grad_y, T y) const {
    return widen(y) > 0 ? grad_y : T(0);
  }
};

template <class Op, typename Args>
bp_status float_launch(const Args& args, Launch& launch) {
  return with_float(args.x->dtype, [&]<typename T>(T) {
    return submit_map<Op, T, T>(launch, Op(), loop_over(*args.y, args.x));
  });
}

template <class Op, typename Args>
bp_status number_launch(const Args& args, Launch& launch) {
  return with_number(args.x->dtype, [&]<typename T>(T) {
    return submit_map<Op, T, T>(launch, Op(), loop_over(*args.y, args.x));
  });
}

bp_status relu_backward_launch(const bp_relu_backward_args& args, Launch& launch) {
  return with_float(args.y->dtype, [&]<typename T>(T) {
    return submit_map<ReluBackward, T, T, T>(launch, ReluBackward(),
                                             loop_over(*args.grad_x, args.grad_y, args.y));
  });
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

constinit const bp_kernel kNeg = make_kernel<bp_neg_args, number_launch<Neg, bp_neg_args>>(
    kernel_row("neg", BP_OP_NEG, kNumberDtypes, kFlags));
constinit const bp_kernel kAbs = make_kernel<bp_abs_args, number_launch<Abs, bp_abs_args>>(
    kernel_row("abs", BP_OP_ABS, kNumberDtypes, kFlags));
constinit const bp_kernel kExp = make_kernel<bp_exp_args, float_launch<Exp, bp_exp_args>>(
    kernel_row("exp", BP_OP_EXP, kFloatDtypes, kFlags));
constinit const bp_kernel kLog = make_kernel<bp_log_args, float_launch<Log, bp_log_args>>(
    kernel_row("log", BP_OP_LOG, kFloatDtypes, kFlags));
constinit const bp_kernel kSqrt = make_kernel<bp_sqrt_args, float_launch<Sqrt, bp_sqrt_args>>(
    kernel_row("sqrt", BP_OP_SQRT, kFloatDtypes, kFlags));
constinit const bp_kernel kRelu = make_kernel<bp_relu_args, float_launch<Relu, bp_relu_args>>(
    kernel_row("relu", BP_OP_RELU, kFloatDtypes, kFlags));
constinit const bp_kernel kReluBackward = make_kernel<bp_relu_backward_args, relu_backward_launch>(
    kernel_row("relu_backward", BP_OP_RELU_BACKWARD, kFloatDtypes, kFlags));

}  // namespace bp::cuda
