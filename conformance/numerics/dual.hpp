// A number with its derivative along one direction. An oracle that runs on this type gives J u
// beside the value, without finite differences.
#pragma once

#include <cmath>

#include "conformance/numerics/erfinv.hpp"

namespace bp::conformance {

template <typename N>
struct Dual {
  N value{};
  N slope{};

  constexpr Dual() = default;
  constexpr Dual(double v) : value(v) {}  // NOLINT: constants have no slope.
  constexpr Dual(N v, N s) : value(v), slope(s) {}
};

template <typename N>
Dual<N> operator-(Dual<N> a) {
  return {-a.value, -a.slope};
}
template <typename N>
Dual<N> operator+(Dual<N> a, Dual<N> b) {
  return {a.value + b.value, a.slope + b.slope};
}
template <typename N>
Dual<N> operator-(Dual<N> a, Dual<N> b) {
  return {a.value - b.value, a.slope - b.slope};
}
template <typename N>
Dual<N> operator*(Dual<N> a, Dual<N> b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
template <typename N>
Dual<N> operator/(Dual<N> a, Dual<N> b) {
  const N value = a.value / b.value;
  return {value, (a.slope - value * b.slope) / b.value};
}
template <typename N>
bool operator<(Dual<N> a, Dual<N> b) {
  return a.value < b.value;
}
template <typename N>
bool operator==(Dual<N> a, Dual<N> b) {
  return a.value == b.value;
}

// The values of a function and of its derivative at x.
template <typename N>
Dual<N> chained(Dual<N> x, N value, N derivative) {
  return {value, derivative * x.slope};
}

template <typename N>
bool isnan(Dual<N> x) {
  using std::isnan;
  return isnan(x.value);
}
template <typename N>
Dual<N> abs(Dual<N> x) {
  return x.value < N(0.0) ? -x : x;
}
template <typename N>
Dual<N> sqrt(Dual<N> x) {
  using std::sqrt;
  const N root = sqrt(x.value);
  return chained(x, root, N(0.5) / root);
}
template <typename N>
Dual<N> exp(Dual<N> x) {
  using std::exp;
  const N value = exp(x.value);
  return chained(x, value, value);
}
template <typename N>
Dual<N> log(Dual<N> x) {
  using std::log;
  return chained(x, log(x.value), N(1.0) / x.value);
}
template <typename N>
Dual<N> tanh(Dual<N> x) {
  using std::tanh;
  const N value = tanh(x.value);
  return chained(x, value, N(1.0) - value * value);
}
template <typename N>
Dual<N> erf(Dual<N> x) {
  using std::erf;
  using std::exp;
  const N two_by_root_pi(1.12837916709551257390);
  return chained(x, erf(x.value), two_by_root_pi * exp(-(x.value * x.value)));
}
template <typename N>
Dual<N> erfc(Dual<N> x) {
  using std::erfc;
  using std::exp;
  const N two_by_root_pi(1.12837916709551257390);
  return chained(x, erfc(x.value), -(two_by_root_pi * exp(-(x.value * x.value))));
}
template <typename N>
Dual<N> erfinv(Dual<N> x) {
  using std::exp;
  const N half_root_pi(0.88622692545275801365), y = erfinv(x.value);
  return chained(x, y, half_root_pi * exp(y * y));
}
template <typename N>
Dual<N> sin(Dual<N> x) {
  using std::cos;
  using std::sin;
  return chained(x, sin(x.value), cos(x.value));
}
template <typename N>
Dual<N> cos(Dual<N> x) {
  using std::cos;
  using std::sin;
  return chained(x, cos(x.value), -sin(x.value));
}

}  // namespace bp::conformance
