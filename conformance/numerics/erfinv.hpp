// The inverse of the error function, which the standard library lacks.
#pragma once

#include <cmath>
#include <limits>

namespace bp::conformance {

// Returns the inverse of erf(), by Newton's method from a formula that is 0.2 % off (Winitzki
// 2008). Where erf() is near 1, each step takes the difference in erfc().
inline double erfinv(double x) {
  if (std::isnan(x) || std::fabs(x) > 1) return std::numeric_limits<double>::quiet_NaN();
  if (std::fabs(x) == 1) return std::copysign(HUGE_VAL, x);
  const double a = std::fabs(x), w = std::log1p(-a * a), factor = 0.147;
  const double half = 2 / (M_PI * factor) + w / 2;
  double y = a < 1e-8 ? a / M_2_SQRTPI : std::sqrt(std::sqrt(half * half - w / factor) - half);
  for (int step = 0; step < 6; ++step) {
    const double off = a < 0.5 ? std::erf(y) - a : (1 - a) - std::erfc(y);
    y -= off * std::exp(y * y) / M_2_SQRTPI;
  }
  return std::copysign(y, x);
}

}  // namespace bp::conformance
