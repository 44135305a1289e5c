#include "conformance/numerics/accept.hpp"

#include <algorithm>
#include <cmath>

namespace bp::conformance {
namespace {

// Returns how far the interval reaches on each side of r. If the bound is NaN, as an infinite term
// makes it, only the exact value is right.
double width(const Exact& exact) {
  if (!std::isfinite(exact.value.hi) || std::isnan(exact.bound)) return 0;
  return exact.bound;
}

}  // namespace

Interval accepted_interval(bp_dtype dtype, const Exact& exact, const Numerics& numerics) {
  const double b = width(exact);
  Interval interval{round_to(dtype, exact.value - DoubleDouble(b)),
                    round_to(dtype, exact.value + DoubleDouble(b))};
  if (b == 0) interval = {round_to(dtype, exact.value), round_to(dtype, exact.value)};
  if (numerics.faithful && std::isfinite(exact.value.hi)) {
    interval.low = next_after(dtype, interval.low, -HUGE_VAL);
    interval.high = next_after(dtype, interval.high, HUGE_VAL);
  }
  if (numerics.saturates && std::isfinite(exact.value.hi)) {
    const double largest = float_format(dtype)->largest();
    interval.low = std::min(interval.low, largest);
    interval.high = std::max(interval.high, -largest);
  }
  return interval;
}

bool accept(bp_dtype dtype, double y, const Exact& exact, const Numerics& numerics) {
  if (isnan(exact.value)) return std::isnan(y);
  if (std::isnan(y)) return false;
  const double smallest_normal = float_format(dtype)->smallest_normal();
  const double least = std::fabs(exact.value.hi) - width(exact);
  if (numerics.flush_outputs && y == 0 && least < smallest_normal) return true;
  const Interval interval = accepted_interval(dtype, exact, numerics);
  if (!(interval.low <= y && y <= interval.high)) return false;
  const bool is_exact_zero = exact.value.hi == 0 && y == 0;
  return !(exact.sign_of_zero && is_exact_zero) || std::signbit(y) == std::signbit(exact.value.hi);
}

double margin(bp_dtype dtype, double y, const Exact& exact) {
  if (isnan(exact.value) || std::isnan(y))
    return isnan(exact.value) && std::isnan(y) ? 0 : HUGE_VAL;
  if (y == exact.value.hi) return 0;
  const double half_width = width(exact) + 0.5 * ulp(dtype, exact.value.hi);
  return std::fabs((DoubleDouble(y) - exact.value).hi) / half_width;
}

}  // namespace bp::conformance
