// Oracles of the element-wise ops of one tensor: one function per op, on one element.
#pragma once

#include <cmath>

#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

template <typename N>
N neg(N x) {
  return -x;
}

// The smallest integer, whose negative wraps, stays as it is.
template <typename N>
N absolute_value(N x) {
  using std::abs;
  return abs(x);
}

// The others are found by the type of x: std for double, else the number type's own.
template <typename N>
N exponential(N x) {
  using std::exp;
  return exp(x);
}
template <typename N>
N logarithm(N x) {
  using std::log;
  return log(x);
}
template <typename N>
N square_root(N x) {
  using std::sqrt;
  return sqrt(x);
}

// NaN stays NaN.
template <typename N>
N relu(N x) {
  return x < N(0) ? N(0) : x;
}

// `y` is the result of relu; NaN in y gives 0.
template <typename N>
N relu_backward(N grad_y, N y) {
  return N(0) < y ? grad_y : N(0);
}

}  // namespace bp::conformance::reference
