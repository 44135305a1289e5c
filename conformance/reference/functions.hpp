// The transcendental functions that number types lack: hyperbolic tangent, error function, and sine
// and cosine of a part of a turn.
#pragma once

#include <cmath>

#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/double_double.hpp"
#include "conformance/numerics/erfinv.hpp"

namespace bp::conformance {

inline constexpr DoubleDouble kPi(0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53);

// The errors in ulp, by the precision of the compute type.
template <int kBits>
constexpr double kTanhUlps = kBits == 53 ? 4 : 5;
template <int kBits>
constexpr double kErfUlps = kBits == 53 ? 8 : 16;
template <int kBits>
constexpr double kSineUlps = kBits == 53 ? 2 : 4;

// ---- DoubleDouble ---------------------------------------------------------------------------- //

// Returns exp(x) - 1 for |x| <= 0.5 by its series, in which nothing cancels.
inline DoubleDouble expm1_series(DoubleDouble x) {
  DoubleDouble term = x, sum = x;
  for (int n = 2; n <= 28; ++n) {
    term = term * x / DoubleDouble(n);
    sum = sum + term;
  }
  return sum;
}

inline DoubleDouble tanh(DoubleDouble x) {
  if (isnan(x) || x.hi == 0) return x;
  if (std::fabs(x.hi) > 40) return std::copysign(1.0, x.hi);
  const DoubleDouble a = abs(x);
  const DoubleDouble e = a.hi <= 0.25 ? expm1_series(a + a) : exp(a + a) - DoubleDouble(1);
  const DoubleDouble t = e / (e + DoubleDouble(2));
  return x.hi < 0 ? -t : t;
}

// Uses the series of positive terms: 2 / sqrt(pi) * exp(-x^2) * sum 2^n x^(2n + 1) / (2n + 1)!!.
inline DoubleDouble erf(DoubleDouble x) {
  if (isnan(x) || x.hi == 0) return x;
  if (std::fabs(x.hi) > 8.5) return std::copysign(1.0, x.hi);
  const DoubleDouble twice_square = x * x + x * x;
  DoubleDouble term = x, sum = x;
  for (int n = 0; std::fabs(term.hi) > std::fabs(sum.hi) * 0x1p-110; ++n) {
    term = term * twice_square / DoubleDouble(2 * n + 3);
    sum = sum + term;
  }
  return DoubleDouble(2) / sqrt(kPi) * exp(-(x * x)) * sum;
}

// Returns 1 - erf(x) for x >= 0. Small values come from this continued fraction:
//
//   sqrt(pi) * exp(x^2) * erfc(x) = 1 / (x + (1/2) / (x + 1 / (x + (3/2) / (x + 2 / ...))))
inline DoubleDouble erfc(DoubleDouble x) {
  if (isnan(x) || x.hi < 2) return DoubleDouble(1) - erf(x);
  if (x.hi > 40) return DoubleDouble(0);
  constexpr int kSteps = 400;  // At 2, which needs the most steps, the error is then 2^-106.
  DoubleDouble rest = x;
  for (int n = kSteps; n > 0; --n) rest = x + DoubleDouble(n * 0.5) / rest;
  return exp(-(x * x)) / (sqrt(kPi) * rest);
}

// Makes one step of Newton's method from the double, which doubles the digits.
inline DoubleDouble erfinv(DoubleDouble x) {
  const double near = erfinv(std::fabs(x.hi));
  if (!std::isfinite(near) || x.hi == 0) return std::copysign(near, x.hi);
  const DoubleDouble a = abs(x), y(near);
  const DoubleDouble off = a.hi < 0.5 ? erf(y) - a : (DoubleDouble(1) - a) - erfc(y);
  const DoubleDouble better = y - off * exp(y * y) * sqrt(kPi) / DoubleDouble(2);
  return x.hi < 0 ? -better : better;
}

struct SineAndCosine {
  DoubleDouble sine, cosine;
};

// Returns sine and cosine of 2 * pi * turns for turns in [0, 1). It uses the series in the nearest
// eighth of a turn, and turns the result back.
inline SineAndCosine sine_and_cosine(DoubleDouble turns) {
  const double quarter = std::nearbyint(turns.hi * 4);
  const DoubleDouble rest = turns - DoubleDouble(quarter / 4), x = kPi * (rest + rest);
  DoubleDouble term = 1, sine = 0, cosine = 0;
  for (int n = 0; n < 30; ++n) {
    const DoubleDouble next = n % 4 < 2 ? term : -term;
    (n % 2 == 0 ? cosine : sine) = (n % 2 == 0 ? cosine : sine) + next;
    term = term * x / DoubleDouble(n + 1);
  }
  switch (static_cast<int>(quarter) % 4) {
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    case 3:
      return {-cosine, sine};
    default:
      return {sine, cosine};
  }
}

// ---- Bounded --------------------------------------------------------------------------------- //

template <int kBits>
Bounded<kBits> tanh(Bounded<kBits> x) {
  const double nearest = std::tanh(std::fmax(std::fabs(x.value) - x.error, 0.0));
  const double carried = x.error * (1 - nearest * nearest);
  return Bounded<kBits>::step(std::tanh(x.value), carried, kTanhUlps<kBits>);
}

template <int kBits>
Bounded<kBits> erf(Bounded<kBits> x) {
  const double nearest = std::fmax(std::fabs(x.value) - x.error, 0.0);
  const double carried = x.error == 0 ? 0 : x.error * M_2_SQRTPI * std::exp(-nearest * nearest);
  return Bounded<kBits>::step(std::erf(x.value), carried, kErfUlps<kBits>);
}

// The slope is largest at the end that is nearer to 1.
template <int kBits>
Bounded<kBits> erfinv(Bounded<kBits> x) {
  const double furthest = erfinv(std::fabs(x.value) + x.error);
  const double slope = std::exp(furthest * furthest) / M_2_SQRTPI;
  const double carried = x.error == 0 ? 0 : std::isfinite(slope) ? x.error * slope : HUGE_VAL;
  return Bounded<kBits>::step(erfinv(x.value), carried, kErfinvUlps);
}

// Where all of x is below 0, the slope is largest at the end nearer to 0. Elsewhere the slope of
// the logarithm is at most 2 / sqrt(pi), and 2 x more above 0.
template <int kBits>
Bounded<kBits> erfc(Bounded<kBits> x) {
  const double value = std::erfc(x.value), end = x.value + x.error;
  double carried = 0;
  if (x.error != 0 && end < 0) {
    carried = x.error * M_2_SQRTPI * std::exp(-end * end);
  } else if (x.error != 0) {
    carried = value * std::expm1(x.error * (2 * std::fmax(end, 0) + M_2_SQRTPI));
  }
  return Bounded<kBits>::step(value, carried, kErfUlps<kBits>);
}

// ---- By number type ---------------------------------------------------------------------------
// //

// Returns cos(2 * pi * turns), and the sine. The product is a step of its own, whose error counts.
template <typename N>
N cosine_of_turns(double turns);
template <typename N>
N sine_of_turns(double turns);

template <>
inline double cosine_of_turns<double>(double turns) {
  return sine_and_cosine(turns).cosine.hi;
}
template <>
inline double sine_of_turns<double>(double turns) {
  return sine_and_cosine(turns).sine.hi;
}
template <>
inline DoubleDouble cosine_of_turns<DoubleDouble>(double turns) {
  return sine_and_cosine(turns).cosine;
}
template <>
inline DoubleDouble sine_of_turns<DoubleDouble>(double turns) {
  return sine_and_cosine(turns).sine;
}

// The error of the angle counts with the steepest slope.
template <int kBits>
double angle_error(double turns) {
  return 4 * Bounded<kBits>::kUnit * M_PI * turns;
}
template <>
inline Bounded<24> cosine_of_turns<Bounded<24>>(double turns) {
  return Bounded<24>::step(cosine_of_turns<double>(turns), angle_error<24>(turns), kSineUlps<24>);
}
template <>
inline Bounded<24> sine_of_turns<Bounded<24>>(double turns) {
  return Bounded<24>::step(sine_of_turns<double>(turns), angle_error<24>(turns), kSineUlps<24>);
}
template <>
inline Bounded<53> cosine_of_turns<Bounded<53>>(double turns) {
  return Bounded<53>::step(cosine_of_turns<double>(turns), angle_error<53>(turns), kSineUlps<53>);
}
template <>
inline Bounded<53> sine_of_turns<Bounded<53>>(double turns) {
  return Bounded<53>::step(sine_of_turns<double>(turns), angle_error<53>(turns), kSineUlps<53>);
}

}  // namespace bp::conformance
