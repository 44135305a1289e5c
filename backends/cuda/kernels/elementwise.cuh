// The primitives of `compute`, in the computing type, from which ops_spec/emit_cuda.py makes
// element-wise kernels. Integers are computed as unsigned numbers, which wrap.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/scalar.hpp"

namespace bp::cuda {

// Op with one value, in the type in which Op computes, as its last input for all elements.
template <class Op>
struct WithOperand {
  template <typename T, typename... X>
  __host__ __device__ auto operator()(T x, X... others) const {
    return op(x, others..., operand.get<Compute<T>>());
  }

  Op op;
  ScalarArgument operand;
};

}  // namespace bp::cuda

namespace bp::cuda::primitive {

// C, or the unsigned type if C is an integer, so that sums and products are always defined.
template <typename C>
using Ring =
    std::conditional_t<std::is_integral_v<C>, std::make_unsigned<C>, std::type_identity<C>>::type;

template <typename C>
__host__ __device__ __forceinline__ Ring<C> in_ring(C x) {
  return static_cast<Ring<C>>(x);
}

template <typename C>
__host__ __device__ __forceinline__ C add(C a, C b) {
  return static_cast<C>(in_ring(a) + in_ring(b));
}

template <typename C>
__host__ __device__ __forceinline__ C sub(C a, C b) {
  return static_cast<C>(in_ring(a) - in_ring(b));
}

template <typename C>
__host__ __device__ __forceinline__ C mul(C a, C b) {
  return static_cast<C>(in_ring(a) * in_ring(b));
}

// Returns -x. A difference from 0 would lose the sign of a floating 0.
template <typename C>
__host__ __device__ __forceinline__ C neg(C x) {
  if constexpr (std::is_integral_v<C>) {
    return sub(C{0}, x);
  } else {
    return -x;
  }
}

template <typename C>
__host__ __device__ __forceinline__ C abs(C x) {
  if constexpr (std::is_integral_v<C>) {
    return x < 0 ? neg(x) : x;
  } else {
    return fabs(x);
  }
}

// Returns NaN if one operand is NaN, and the first operand if both are equal.
template <typename C>
__host__ __device__ __forceinline__ C max(C a, C b) {
  return is_larger(a, b) ? b : a;
}

template <typename C>
__host__ __device__ __forceinline__ C min(C a, C b) {
  return b < a || (is_nan(b) && !is_nan(a)) ? b : a;
}

template <typename C>
__host__ __device__ __forceinline__ bool signbit(C x) {
  return copysign(C{1}, x) < 0;
}

template <typename C>
__host__ __device__ __forceinline__ bool isfinite(C x) {
  if constexpr (std::is_integral_v<C>) {
    return true;
  } else {
    return fabs(x) < C{INFINITY};
  }
}

template <typename C>
__host__ __device__ __forceinline__ bool isinf(C x) {
  return !isfinite(x) && !is_nan(x);
}

// Returns x * 2^bits, which wraps; 0 if C has not more bits than that, or `bits` is negative.
template <typename C>
__host__ __device__ __forceinline__ C shift_left(C x, C bits) {
  return in_ring(bits) < 8 * sizeof(C) ? static_cast<C>(in_ring(x) << bits) : C{0};
}

// Returns x / 2^bits, rounded down; 0 or -1, as x is, if C has not more bits than that, or `bits`
// is negative.
template <typename C>
__host__ __device__ __forceinline__ C shift_right(C x, C bits) {
  return x >> (in_ring(bits) < 8 * sizeof(C) ? bits : C{8 * sizeof(C) - 1});
}

// Returns the rest of a / b with the sign of a, without an error; of integers 0 where b is 0.
template <typename C>
__host__ __device__ __forceinline__ C fmod(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return b == 0 || b == -1 ? C{0} : a % b;
  } else {
    return std::fmod(a, b);
  }
}

// Returns the rest of a / b with the sign of b, that of a where it is 0.
template <typename C>
__host__ __device__ __forceinline__ C modulo(C a, C b) {
  const C rest = primitive::fmod(a, b);
  return rest != 0 && !is_nan(rest) && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Returns a / b, rounded, and then rounded down; of integers 0 where b is 0.
template <typename C>
__host__ __device__ __forceinline__ C floor_quotient(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    if (b == 0) return 0;
    if (b == -1) return neg(a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  } else {
    return floor(a / b);
  }
}

}  // namespace bp::cuda::primitive
