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

}  // namespace bp::cuda::primitive
