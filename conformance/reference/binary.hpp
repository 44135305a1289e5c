// Oracles of the element-wise ops of two tensors: one function per op, on one element of each.
#pragma once

#include <cmath>

#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

template <typename N>
N add(N a, N b) {
  return a + b;
}
template <typename N>
N sub(N a, N b) {
  return a - b;
}
template <typename N>
N mul(N a, N b) {
  return a * b;
}
template <typename N>
N div(N a, N b) {
  return a / b;
}

// NaN where either is NaN.
template <typename N>
N maximum(N a, N b) {
  using std::isnan;
  if (isnan(a)) return a;
  if (isnan(b)) return b;
  return a < b ? b : a;
}

template <typename N>
N minimum(N a, N b) {
  using std::isnan;
  if (isnan(a)) return a;
  if (isnan(b)) return b;
  return b < a ? b : a;
}

// False where either is NaN, and -0 is not below 0.
template <typename N>
N lt(N a, N b) {
  return a < b ? N(1) : N(0);
}

// NaN equals nothing, and -0 equals 0.
template <typename N>
N eq(N a, N b) {
  return a == b ? N(1) : N(0);
}

}  // namespace bp::conformance::reference
