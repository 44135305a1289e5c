// A number with a bound on the error of the computation that produced it. An oracle that runs on
// this type gives the bound of an op that has no closed formula.
//
// Each step adds the bound of its class (bounds.hpp) to the errors of its operands. kBits is the
// precision of the arithmetic that is bounded: 24 for f32, 53 for f64.
#pragma once

#include <cmath>
#include <span>
#include <utility>

#include "conformance/numerics/bounds.hpp"

namespace bp::conformance {

// While an object lives, the steps of f32 on its thread have the bounds of relaxed math, or those
// of precise math.
class RelaxedMath {
 public:
  explicit RelaxedMath(bool is_relaxed) : before_(std::exchange(current, is_relaxed)) {}
  ~RelaxedMath() { current = before_; }
  RelaxedMath(const RelaxedMath&) = delete;

  static bool is_on() { return current; }

 private:
  static inline thread_local bool current = false;
  const bool before_;
};

template <int kBits>
struct Bounded {
  double value = 0;
  double error = 0;
  bool is_lost = false;  // An earlier step may have overflowed: the result may be anything.

  static constexpr bool kWide = kBits == 53;
  static constexpr double kUnit = kWide ? 0x1p-53 : 0x1p-24;
  static constexpr double kTiny = kWide ? 0x1p-1074 : 0x1p-149;

  static bool is_relaxed() { return !kWide && RelaxedMath::is_on(); }

  constexpr Bounded() = default;
  constexpr Bounded(double v) : value(v) {}  // NOLINT: inputs and constants are exact.
  constexpr Bounded(double v, double e) : value(v), error(e) {}

  // Returns whether a result that is computed from this number is lost.
  bool may_overflow() const {
    constexpr double kLargest = kWide ? 0x1.fffffffffffffp+1023 : 0x1.fffffep+127;
    return is_lost || std::fabs(value) + error > kLargest;
  }
  Bounded after(Bounded a, Bounded b) const {
    Bounded result = *this;
    result.is_lost = a.may_overflow() || b.may_overflow();
    return result;
  }

  // Returns `value` after a step with an error of `ulps`, plus the errors of its operands.
  static Bounded step(double value, double carried, double ulps = 0.5) {
    return {value, carried + 2 * ulps * kUnit * (std::fabs(value) + carried) + kTiny};
  }
};

template <int kBits>
Bounded<kBits> operator-(Bounded<kBits> a) {
  a.value = -a.value;
  return a;
}
template <int kBits>
Bounded<kBits> operator+(Bounded<kBits> a, Bounded<kBits> b) {
  return Bounded<kBits>::step(a.value + b.value, a.error + b.error).after(a, b);
}
template <int kBits>
Bounded<kBits> operator-(Bounded<kBits> a, Bounded<kBits> b) {
  return a + -b;
}
template <int kBits>
Bounded<kBits> operator*(Bounded<kBits> a, Bounded<kBits> b) {
  const double carried =
      std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
  return Bounded<kBits>::step(a.value * b.value, carried).after(a, b);
}
template <int kBits>
Bounded<kBits> operator/(Bounded<kBits> a, Bounded<kBits> b) {
  const double value = a.value / b.value;
  const double least = std::fabs(b.value) - b.error;
  const double carried =
      a.error == 0 && b.error == 0 ? 0 : (a.error + std::fabs(value) * b.error) / least;
  const double brought = least > 0 ? carried : HUGE_VAL;
  return Bounded<kBits>::step(value, brought, kDivideUlps<kBits>).after(a, b);
}
template <int kBits>
bool operator<(Bounded<kBits> a, Bounded<kBits> b) {
  return a.value < b.value;
}
template <int kBits>
bool operator==(Bounded<kBits> a, Bounded<kBits> b) {
  return a.value == b.value;
}
template <int kBits>
bool isnan(Bounded<kBits> x) {
  return std::isnan(x.value);
}
template <int kBits>
Bounded<kBits> abs(Bounded<kBits> x) {
  x.value = std::fabs(x.value);
  return x;
}
template <int kBits>
Bounded<kBits> sqrt(Bounded<kBits> x) {
  const double value = std::sqrt(x.value);
  const double carried = x.error == 0 ? 0 : std::fmin(std::sqrt(x.error), x.error / value);
  return Bounded<kBits>::step(value, carried,
                              Bounded<kBits>::is_relaxed() ? kRelaxedSqrtUlps : 0.5);
}
template <int kBits>
Bounded<kBits> exp(Bounded<kBits> x) {
  const double value = std::exp(x.value);
  // If x is far below 0, its error may be so large that a factor means nothing.
  const double factor = std::expm1(x.error);
  const double carried = std::isfinite(factor) ? value * factor : std::exp(x.value + x.error);
  const double more =
      Bounded<kBits>::is_relaxed() ? kRelaxedExpUlps * (std::fabs(x.value) + x.error) : 0;
  return Bounded<kBits>::step(value, carried, kExpUlps<kBits> + more);
}
template <int kBits>
Bounded<kBits> log(Bounded<kBits> x) {
  const double least = x.value - x.error;
  const double carried = least > 0 ? x.error / least : HUGE_VAL;
  const bool is_near_one = x.value >= 0.5 && x.value <= 2;
  const double more = Bounded<kBits>::is_relaxed() && is_near_one ? kRelaxedLogNearOne : 0;
  return Bounded<kBits>::step(std::log(x.value), (x.error == 0 ? 0 : carried) + more,
                              kLogUlps<kBits>);
}

// Returns a constant of the op, which a kernel may round to its compute type.
template <typename N>
N constant(double value) {
  if constexpr (requires { N::kUnit; }) {
    return N(value, N::kUnit * std::fabs(value));
  } else {
    return N(value);
  }
}

// Returns a sum in any order. Its error grows with the square root of the number of terms.
template <int kBits>
Bounded<kBits> sum_of(std::span<const Bounded<kBits>> terms) {
  double value = 0;
  double carried = 0;
  double magnitude = 0;
  for (const Bounded<kBits>& term : terms) {
    value += term.value;
    carried += term.error;
    magnitude += std::fabs(term.value);
  }
  const double growth = sum_growth(static_cast<double>(terms.size())) * Bounded<kBits>::kUnit;
  return {value, carried + (magnitude + carried) * growth};
}

// Returns a sum of numbers that carry no bound.
template <typename N>
N sum_of(std::span<const N> terms) {
  N total{};
  for (const N& term : terms) total = total + term;
  return total;
}

}  // namespace bp::conformance
