// Oracles of gelu and its gradient, on one element.
//
// A factor that vanishes faster than x grows makes the product zero in the limit, so the gradients
// are right and not NaN for all numbers, also at infinities.
#pragma once

#include <cmath>

#include "conformance/reference/array.hpp"
#include "conformance/reference/functions.hpp"

namespace bp::conformance::reference {

enum class Gelu { kErf, kTanh };

template <typename N>
N hyperbolic_tangent(N x) {
  using std::tanh;
  return tanh(x);
}

// Returns a constant of the form sqrt(a / b / pi), to the precision of the number type.
template <typename N>
N root_over_pi(double a, double b) {
  using std::sqrt;
  const DoubleDouble root = sqrt(DoubleDouble(a) / (DoubleDouble(b) * kPi));
  if constexpr (std::is_same_v<N, DoubleDouble>) {
    return root;
  } else {
    return constant<N>(root.hi);
  }
}

// Below 0 the sum of the definition cancels. There the function uses erfc, whose error is relative.
template <typename N>
N normal_distribution(N x) {
  using std::erf;
  using std::erfc;
  using std::sqrt;
  if (x < N(0)) return erfc(-x / sqrt(N(2))) * N(0.5);
  return (N(1) + erf(x / sqrt(N(2)))) * N(0.5);
}

template <typename N>
N normal_density(N x) {
  using std::exp;
  return exp(x * x * N(-0.5)) * root_over_pi<N>(1, 2);
}

// Returns tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)).
template <typename N>
N gelu_tanh(N x) {
  return hyperbolic_tangent(root_over_pi<N>(2, 1) * (x * (N(1) + constant<N>(0.044715) * (x * x))));
}

template <typename N>
N gelu(N x, Gelu form) {
  if (form == Gelu::kErf) return x * normal_distribution(x);
  return x * ((N(1) + gelu_tanh(x)) * N(0.5));
}

template <typename N>
N gelu_backward(N grad_y, N x, Gelu form) {
  if (form == Gelu::kErf) {
    const N density = normal_density(x);
    const N bend = density == N(0) ? N(0) : x * density;
    return grad_y * (normal_distribution(x) + bend);
  }
  const N t = gelu_tanh(x);
  const N rest = N(1) - t * t;
  const N slope = root_over_pi<N>(2, 1) * (N(1) + constant<N>(3 * 0.044715) * (x * x));
  const N bend = rest == N(0) ? N(0) : x * (rest * slope) * N(0.5);
  return grad_y * ((N(1) + t) * N(0.5) + bend);
}

}  // namespace bp::conformance::reference
