// Activations that have no formula in the spec, or that products apply, in the computing type.
#pragma once

#include "backends/cuda/kernels/device.cuh"
#include "backplane/ops.h"

namespace bp::cuda {

// Returns y * sigmoid(x). It uses the exponential of -|x|, which never overflows. The exponential
// is two factors, because y times it may be a normal number when it is subnormal itself.
template <typename C>
__host__ __device__ C times_sigmoid(C y, C x) {
  constexpr C kLeast = sizeof(C) == sizeof(float) ? -80 : -700;
  if (x < kLeast) {
    const C root = exp(C(0.5) * x);
    return y * root * root;
  }
  const C power = exp(-fabs(x));
  return (x < 0 ? y * power : y) / (C{1} + power);
}

struct Sigmoid {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return times_sigmoid(C{1}, x);
  }
};

struct Silu {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return times_sigmoid(x, x);
  }
};

// Returns y * exp(-t^2 / 2). The square is exact in two parts. The exponential is two factors,
// because the product may be a normal number when the exponential is subnormal.
template <typename C>
__host__ __device__ C times_bell(C y, C t) {
  const C square = t * t, lost = fma(t, t, -square);
  const C root = exp(C(-0.25) * square);
  return y * (C{1} - C(0.5) * lost) * root * root;
}

// Returns 1 / x for x from 2^-60 to 2^60, with an error of at most 2^-23 of it. The approximation
// of the device, which has a few bits less, is corrected once.
__host__ __device__ inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return fmaf(y, fmaf(-x, y, 1.0f), y);
#else
  return 1.0f / x;
#endif
}

// Returns the distribution function of the standard normal distribution at -t divided by exp(-t^2 /
// 2), for t from 0 to 20. It is a polynomial in (t - 4) / (t + 4), divided by 1 + t.
//
// One reciprocal serves both divisions, which take most of the time otherwise.
__host__ __device__ inline float normal_ratio(float t) {
  const float both = reciprocal((t + 4.0f) * (1.0f + t));
  const float q = (t - 4.0f) * ((1.0f + t) * both);
  float p = -7.43745477e-05f;
  p = p * q - 6.6737186e-05f;
  p = p * q + 0.000690844841f;
  p = p * q - 0.000299918756f;
  p = p * q - 0.005002141f;
  p = p * q + 0.0179394502f;
  p = p * q - 0.0321978144f;
  p = p * q + 0.0286000334f;
  p = p * q + 0.0139996363f;
  p = p * q - 0.0967034698f;
  p = p * q + 0.4720532f;
  return p * ((t + 4.0f) * both);
}

// Returns the distribution function. The rounding error of the argument z of erfc is corrected by
// the slope of its logarithm, which is about z + sqrt(z^2 + 4 / pi).
__host__ __device__ inline double normal_cdf(double x) {
  constexpr double kHigh = -0.70710678118654752440, kLow = 4.8336466567264565e-17;
  const double z = x * kHigh, result = 0.5 * erfc(z);
  if (!(z > 0) || z > 30) return result;
  const double lost = fma(x, kHigh, -z) + x * kLow;
  return result * (1 - lost * (z + sqrt(z * z + 1.2732395447351628)));
}

// Below -20 the distribution function is 0. Infinity times zero is NaN, as in the formula.
struct Gelu {
  __host__ __device__ float operator()(float x) const {
    const float t = fabs(x) > 20 ? 20.0f : fabs(x);
    if (x < -20) return x * 0.0f;
    if (x < 0) return times_bell(x * normal_ratio(t), t);
    return x * (1.0f - times_bell(normal_ratio(t), t));
  }
  __host__ __device__ double operator()(double x) const { return x * normal_cdf(x); }
};

// The derivative of gelu is P(x) + x * exp(-x^2 / 2) / sqrt(2 pi).
struct GeluBackward {
  __host__ __device__ float operator()(float grad_y, float x) const {
    const float t = fabs(x) > 20 ? 20.0f : fabs(x);
    if (fabs(x) > 20) return grad_y * (x * 0.0f + (x < 0 ? 0.0f : 1.0f));
    const float slope = times_bell(normal_ratio(t) - 0.39894228f * t, t);
    return grad_y * (x < 0 ? slope : 1.0f - slope);
  }
  __host__ __device__ double operator()(double grad_y, double x) const {
    const double capped = x < -40 ? -40 : x > 40 ? 40 : x;
    const double density = times_bell(0.39894228040143267794, capped);
    return grad_y * (normal_cdf(x) + x * density);
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u); kGeluLinear is 2 sqrt(2 / pi), kGeluCubic 0.044715 times that.
constexpr double kGeluLinear = 1.59576912160573071, kGeluCubic = 0.07135481627260025;

struct GeluTanh {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return times_sigmoid(x, x * (C(kGeluLinear) + C(kGeluCubic) * (x * x)));
  }
};

// With s = sigmoid(v) and v = 2 u, the derivative is s * (1 + x * (1 - s) * v'). If |x| is above
// 40, s is 0 or 1, and x is limited to 40, so that v' does not overflow.
struct GeluTanhBackward {
  template <typename C>
  __host__ __device__ C operator()(C grad_y, C x) const {
    const C capped = x > C{40} ? C{40} : x < C{-40} ? C{-40} : x;
    const C square = capped * capped;
    const C v = capped * (C(kGeluLinear) + C(kGeluCubic) * square);
    const C slope = C(kGeluLinear) + C(3 * kGeluCubic) * square;
    return grad_y * times_sigmoid(C{1} + Sigmoid()(-v) * (capped * slope), v);
  }
};

// Returns the activation of a product (BP_LINEAR_ACTIVATION_NONE and so on) of its sum x.
template <typename Sum>
__device__ __forceinline__ Sum activate(uint32_t activation, Sum x) {
  switch (activation) {
    case BP_LINEAR_ACTIVATION_RELU:
      return x < 0 ? Sum{0} : x;
    case BP_LINEAR_ACTIVATION_GELU:
      return Gelu()(x);
    case BP_LINEAR_ACTIVATION_SILU:
      return Silu()(x);
    default:
      return x;
  }
}

}  // namespace bp::cuda
