// add, sub, mul, div, maximum, minimum, eq and lt, for tensors of every layout and for a second
// operand that is a value of the call.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"

namespace bp::cuda {
namespace {

// Integers wrap: they are computed without a sign.
template <typename T>
using Ring = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                std::type_identity<Compute<T>>>::type;

template <typename T>
__host__ __device__ __forceinline__ Ring<T> in_ring(T x) {
  return static_cast<Ring<T>>(widen(x));
}

struct Add {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return narrow<T>(static_cast<Ring<T>>(in_ring(a) + in_ring(b)));
  }
};

struct Sub {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return narrow<T>(static_cast<Ring<T>>(in_ring(a) - in_ring(b)));
  }
};

struct Mul {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return narrow<T>(static_cast<Ring<T>>(in_ring(a) * in_ring(b)));
  }
};

struct Div {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return narrow<T>(widen(a) / widen(b));
  }
};

// NaN where either is NaN; of two equal ones the first.
struct Maximum {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    return is_larger(widen(a), widen(b)) ? b : a;
  }
};

struct Minimum {
  template <typename T>
  __host__ __device__ T operator()(T a, T b) const {
    const auto left = widen(a), right = widen(b);
    return right < left || (is_nan(right) && !is_nan(left)) ? b : a;
  }
};

struct Eq {
  template <typename T>
  __host__ __device__ bool operator()(T a, T b) const {
    return widen(a) == widen(b);
  }
};

struct Lt {
  template <typename T>
  __host__ __device__ bool operator()(T a, T b) const {
    return widen(a) < widen(b);
  }
};

template <class Op, typename Y, typename T, typename Args>
bp_status submit(const Args& args, Launch& launch) {
  const uint64_t scalar = args.b == nullptr ? convert_scalar(args.b_scalar, args.a->dtype) : 0;
  return submit_map<Op, Y, T, T>(launch, Op(), loop_over(*args.y, args.a, args.b), scalar);
}

template <class Op, typename Args>
bp_status float_launch(const Args& args, Launch& launch) {
  return with_float(args.a->dtype, [&]<typename T>(T) { return submit<Op, T, T>(args, launch); });
}

template <class Op, typename Args>
bp_status number_launch(const Args& args, Launch& launch) {
  return with_number(args.a->dtype, [&]<typename T>(T) { return submit<Op, T, T>(args, launch); });
}

template <class Op, typename Args>
bp_status comparison_launch(const Args& args, Launch& launch) {
  switch (args.a->dtype) {
    case BP_I8:
      return submit<Op, bool, int8_t>(args, launch);
    case BP_I16:
      return submit<Op, bool, int16_t>(args, launch);
    case BP_BOOL:
    case BP_U8:
      return submit<Op, bool, uint8_t>(args, launch);
    default:
      return with_number(args.a->dtype,
                         [&]<typename T>(T) { return submit<Op, bool, T>(args, launch); });
  }
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

}  // namespace

constinit const bp_kernel kAdd = make_kernel<bp_add_args, number_launch<Add, bp_add_args>>(
    kernel_row("add", BP_OP_ADD, kNumberDtypes, kFlags));
constinit const bp_kernel kSub = make_kernel<bp_sub_args, number_launch<Sub, bp_sub_args>>(
    kernel_row("sub", BP_OP_SUB, kNumberDtypes, kFlags));
constinit const bp_kernel kMul = make_kernel<bp_mul_args, number_launch<Mul, bp_mul_args>>(
    kernel_row("mul", BP_OP_MUL, kNumberDtypes, kFlags));
constinit const bp_kernel kDiv = make_kernel<bp_div_args, float_launch<Div, bp_div_args>>(
    kernel_row("div", BP_OP_DIV, kFloatDtypes, kFlags));
constinit const bp_kernel kMaximum =
    make_kernel<bp_maximum_args, number_launch<Maximum, bp_maximum_args>>(
        kernel_row("maximum", BP_OP_MAXIMUM, kNumberDtypes, kFlags));
constinit const bp_kernel kMinimum =
    make_kernel<bp_minimum_args, number_launch<Minimum, bp_minimum_args>>(
        kernel_row("minimum", BP_OP_MINIMUM, kNumberDtypes, kFlags));
constinit const bp_kernel kEq = make_kernel<bp_eq_args, comparison_launch<Eq, bp_eq_args>>(
    kernel_row("eq", BP_OP_EQ, kAnyDtypes, kFlags));
constinit const bp_kernel kLt = make_kernel<bp_lt_args, comparison_launch<Lt, bp_lt_args>>(
    kernel_row("lt", BP_OP_LT, kAnyDtypes, kFlags));

}  // namespace bp::cuda
