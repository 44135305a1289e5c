// Activations and their gradients, on what elements are computed in.
#pragma once

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

struct Tanh {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return tanh(x);
  }
};

struct TanhBackward {
  template <typename C>
  __host__ __device__ C operator()(C grad_y, C y) const {
    return grad_y * (C{1} - y * y);
  }
};

// The exponential of -|x|, so that it never overflows.
struct Sigmoid {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    const C power = exp(-fabs(x));
    return (x < 0 ? power : C{1}) / (C{1} + power);
  }
};

struct SigmoidBackward {
  template <typename C>
  __host__ __device__ C operator()(C grad_y, C y) const {
    return grad_y * y * (C{1} - y);
  }
};

struct Silu {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return x * Sigmoid()(x);
  }
};

// 1 - sigmoid(x) is sigmoid(-x), which has no cancellation.
struct SiluBackward {
  template <typename C>
  __host__ __device__ C operator()(C grad_y, C x) const {
    return grad_y * (Sigmoid()(x) * (C{1} + x * Sigmoid()(-x)));
  }
};

// The distribution function of the standard normal distribution.
template <typename C>
__host__ __device__ C normal_cdf(C x) {
  return C(0.5) * erfc(x * C(-0.70710678118654752440));
}

struct Gelu {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return x * normal_cdf(x);
  }
};

// P(x) + x * exp(-x^2 / 2) / sqrt(2 pi).
struct GeluBackward {
  template <typename C>
  __host__ __device__ C operator()(C grad_y, C x) const {
    const C density = C(0.39894228040143267794) * exp(C(-0.5) * x * x);
    return grad_y * (normal_cdf(x) + x * density);
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u); kGeluLinear is 2 sqrt(2 / pi), kGeluCubic 0.044715 times that.
constexpr double kGeluLinear = 1.59576912160573071, kGeluCubic = 0.07135481627260025;

struct GeluTanh {
  template <typename C>
  __host__ __device__ C operator()(C x) const {
    return x * Sigmoid()(x * (C(kGeluLinear) + C(kGeluCubic) * (x * x)));
  }
};

// With s = sigmoid(v) and v = 2 u, the derivative is s + x * s * (1 - s) * v'. Beyond 40, s is 0 or
// 1 and x may stay there, so that v' does not overflow.
struct GeluTanhBackward {
  template <typename C>
  __host__ __device__ C operator()(C grad_y, C x) const {
    const C capped = x > C{40} ? C{40} : x < C{-40} ? C{-40} : x;
    const C square = capped * capped;
    const C v = capped * (C(kGeluLinear) + C(kGeluCubic) * square);
    const C slope = C(kGeluLinear) + C(3 * kGeluCubic) * square;
    const C s = Sigmoid()(v);
    return grad_y * (s + s * Sigmoid()(-v) * (capped * slope));
  }
};

}  // namespace bp::cuda
