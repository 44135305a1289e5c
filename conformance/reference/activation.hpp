// Oracles of the activations and their gradients, on one element.
//
// What vanishes faster than x grows is zero times x as a limit: the gradients are right, and no
// NaN, for all numbers and at infinities.
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

// `y` is the result of tanh.
template <typename N>
N tanh_backward(N grad_y, N y) {
  return grad_y * (N(1) - y * y);
}

// The exponential never overflows.
template <typename N>
N sigmoid(N x) {
  using std::exp;
  if (x < N(0)) {
    const N e = exp(x);
    return e / (N(1) + e);
  }
  return N(1) / (N(1) + exp(-x));
}

// `y` is the result of sigmoid.
template <typename N>
N sigmoid_backward(N grad_y, N y) {
  return grad_y * y * (N(1) - y);
}

template <typename N>
N silu(N x) {
  return x * sigmoid(x);
}

template <typename N>
N silu_backward(N grad_y, N x) {
  const N s = sigmoid(x), rest = sigmoid(-x);
  const N bend = rest == N(0) || s == N(0) ? N(0) : x * rest;
  return grad_y * (s * (N(1) + bend));
}

// A constant of the form sqrt(a / b / pi), to the precision of the number type.
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

// Below 0 the sum of the definition cancels: there it is erfc, whose error is relative.
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

// tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)).
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
