// The primitives of `compute` (ops_spec/primitives.py) that are not operators, on every number type
// of the oracles. emit_elementwise.py calls them.
#pragma once

#include <cmath>
#include <type_traits>

#include "conformance/numerics/integer.hpp"
#include "conformance/reference/functions.hpp"

namespace bp::conformance::primitive {

// Returns a number of a formula, as the nearest double and the rest. A kernel rounds it to its own
// type.
template <typename N>
N number(double high, double low) {
  if constexpr (std::is_same_v<N, DoubleDouble>) {
    return {high, low};
  } else {
    return constant<N>(high);
  }
}

template <typename N>
double nearest(const N& x) {
  if constexpr (std::is_same_v<N, double>) {
    return x;
  } else if constexpr (std::is_same_v<N, DoubleDouble>) {
    return x.hi;
  } else {
    return nearest(x.value);
  }
}

// The negative of the smallest integer wraps, so its absolute value is that integer itself.
template <typename N>
N abs(N x) {
  using std::abs;
  return abs(x);
}
template <typename N>
N exp(N x) {
  using std::exp;
  return exp(x);
}
template <typename N>
N log(N x) {
  using std::log;
  return log(x);
}
template <typename N>
N sqrt(N x) {
  using std::sqrt;
  return sqrt(x);
}
template <typename N>
N tanh(N x) {
  using std::tanh;
  return tanh(x);
}
// The lookup by argument finds no erfinv() for doubles, so the function names the one of this
// suite.
template <typename N>
N erfinv(N x) {
  using conformance::erfinv;
  return erfinv(x);
}

// Returns NaN if either is NaN, and `a` if both are zeros. The error of the result is the larger
// one of both, because an error could change the choice.
template <typename N>
N chosen(N a, N b, bool takes_b) {
  using std::isnan;
  if (isnan(a)) return a;
  if (isnan(b)) return b;
  N result = takes_b ? b : a;
  if constexpr (requires { result.error; }) result.error = std::fmax(a.error, b.error);
  return result;
}
template <typename N>
N max(N a, N b) {
  return chosen(a, b, a < b);
}
template <typename N>
N min(N a, N b) {
  return chosen(a, b, b < a);
}

template <typename N>
bool signbit(N x) {
  return std::signbit(nearest(x));
}

}  // namespace bp::conformance::primitive
