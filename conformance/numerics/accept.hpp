// The test of a result: it must lie in the interval that the exact value, the bound and the
// declared rounding allow.
#pragma once

#include <optional>

#include "conformance/numerics/dtype.hpp"
#include "conformance/numerics/numerics.hpp"

namespace bp::conformance {

struct Interval {
  double low, high;
};

// One value to compare with a result. `bound` is B, the error allowed before the final rounding.
struct Exact {
  DoubleDouble value;
  double bound = 0;
  bool sign_of_zero = false;  // -0 and 0 are different results.
};

// Returns the results of `dtype` that are accepted for `exact`, which is not NaN.
Interval accepted_interval(bp_dtype dtype, const Exact& exact, const Numerics& numerics);

// Returns whether `y`, a value of the floating-point type `dtype`, is right.
bool accept(bp_dtype dtype, double y, const Exact& exact, const Numerics& numerics);

// Returns |y - r| divided by the accepted half-width; 0 if both are the same infinity or NaN.
double margin(bp_dtype dtype, double y, const Exact& exact);

}  // namespace bp::conformance
