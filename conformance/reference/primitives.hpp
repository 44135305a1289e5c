// The primitives of `compute` (ops_spec/primitives.py) that are not operators, on every number type
// of the oracles. emit_elementwise.py calls them.
#pragma once

#include <cmath>
#include <type_traits>

#include "conformance/numerics/integer.hpp"
#include "conformance/reference/functions.hpp"
#include "conformance/reference/library.hpp"

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

// Returns NaN if either is NaN, and `a` if both are zeros. The error of the other one counts as far
// as it could change the choice, which is beyond the difference of both.
template <typename N>
N chosen(N a, N b, bool takes_b) {
  using std::isnan;
  if (isnan(a)) return a;
  if (isnan(b)) return b;
  N result = takes_b ? b : a;
  if constexpr (requires { result.error; }) {
    const N& other = takes_b ? a : b;
    const double difference = std::fabs(result.value - other.value);
    result.error = std::fmax(result.error, other.error - difference);
  }
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

template <typename N>
bool isnan(N x) {
  return std::isnan(nearest(x));
}
template <typename N>
bool isinf(N x) {
  return std::isinf(nearest(x));
}
template <typename N>
bool isfinite(N x) {
  return std::isfinite(nearest(x));
}
inline bool isnan(Integer) { return false; }
inline bool isinf(Integer) { return false; }
inline bool isfinite(Integer) { return true; }

// Returns a * b + c. The sum is infinite if c is, even if the product lies beyond the doubles.
template <typename N>
N fma(N a, N b, N c) {
  return isinf(c) && isfinite(a) && isfinite(b) ? c : a * b + c;
}

// ---- Whole numbers ------------------------------------------------------------------------------

// Rounds to a whole number, one of doubles. If x has an error, the result may be another one.
template <typename N>
N whole(N x, double (*round)(double)) {
  if constexpr (std::is_same_v<N, double>) {
    return round(x);
  } else if constexpr (std::is_same_v<N, DoubleDouble>) {
    const double whole = round(x.hi);
    // Of two doubles only floor() is taken; other functions get inputs, which are one.
    return whole != x.hi || x.lo == 0 ? whole : two_sum(whole, round(x.lo));
  } else if constexpr (requires { x.error; }) {
    const double off = std::fabs(round(x.value + x.error) - round(x.value - x.error));
    return N(round(x.value), x.error == 0 ? 0 : std::isnan(off) ? HUGE_VAL : off);
  } else {
    return N(whole(x.value, round), {});  // The slope is 0.
  }
}
template <typename N>
N floor(N x) {
  return whole(x, std::floor);
}
template <typename N>
N ceil(N x) {
  return whole(x, std::ceil);
}
template <typename N>
N trunc(N x) {
  return whole(x, std::trunc);
}
template <typename N>
N round(N x) {
  return whole(x, std::nearbyint);
}

// Returns the rest of a / b without an error, with the sign of a.
template <typename N>
N fmod(N a, N b) {
  if constexpr (std::is_same_v<N, double>) {
    return std::fmod(a, b);
  } else if constexpr (std::is_same_v<N, DoubleDouble>) {
    return std::fmod(a.hi, b.hi);  // The arguments are doubles.
  } else if constexpr (requires { a.error; }) {
    return N(std::fmod(a.value, b.value), a.error == 0 && b.error == 0 ? 0 : HUGE_VAL);
  } else {
    return N(fmod(a.value, b.value), a.slope - trunc(a.value / b.value) * b.slope);
  }
}

// Returns the rest with the sign of b.
template <typename N>
N modulo(N a, N b) {
  const N rest = fmod(a, b);
  const double sign = nearest(rest);
  return sign == 0 || std::isnan(sign) || std::signbit(sign) == signbit(b) ? rest : rest + b;
}

template <typename N>
N floor_quotient(N a, N b) {
  return floor(a / b);
}

inline Integer fmod(Integer a, Integer b) {
  return b.value == 0 || b.value == -1 ? Integer() : Integer(a.value % b.value);
}
inline Integer modulo(Integer a, Integer b) {
  const Integer rest = fmod(a, b);
  return rest.value != 0 && (rest.value < 0) != (b.value < 0) ? rest + b : rest;
}
inline Integer floor_quotient(Integer a, Integer b) {
  if (b.value == 0) return {};
  if (b.value == -1) return -a;
  const bool is_above = a.value % b.value != 0 && (a.value < 0) != (b.value < 0);
  return Integer(a.value / b.value - (is_above ? 1 : 0));
}

// ---- Bits ---------------------------------------------------------------------------------------

inline Integer bit_not(Integer x) { return ~x.value; }
inline Integer bit_and(Integer a, Integer b) { return a.value & b.value; }
inline Integer bit_or(Integer a, Integer b) { return a.value | b.value; }
inline Integer bit_xor(Integer a, Integer b) { return a.value ^ b.value; }

// The low bits are those of the narrower types.
inline Integer shift_left(Integer a, Integer b) {
  return b.value < 0 || b.value > 63 ? Integer() : Integer::wrap(a.bits() << b.value);
}
inline Integer shift_right(Integer a, Integer b) {
  return a.value >> (b.value < 0 || b.value > 63 ? 63 : b.value);
}

}  // namespace bp::conformance::primitive
