// The acceptance primitive: whether a result lies in the interval that the exact value, the bound
// and the declared rounding allow.
//
//   accept(y; r, B, T)  :=  round_T(r - B) <= y <= round_T(r + B)
#pragma once

#include <optional>

#include "conformance/numerics/dtype.hpp"
#include "conformance/numerics/numerics.hpp"

namespace bp::conformance {

struct Interval {
  double low, high;
};

// One value to judge. `bound` is B, the error allowed before the final rounding.
struct Exact {
  DoubleDouble value;
  double bound = 0;
  bool sign_of_zero = false;  // -0 and 0 are different results.
};

// The results of `dtype` that are accepted for `exact`, which is not NaN.
Interval accepted_interval(bp_dtype dtype, const Exact& exact, const Numerics& numerics);

// Whether `y`, a value of `dtype`, is right. Floating-point types only.
bool accept(bp_dtype dtype, double y, const Exact& exact, const Numerics& numerics);

// |y - r| divided by the accepted half-width; 0 where both are the same infinity or NaN.
double margin(bp_dtype dtype, double y, const Exact& exact);

}  // namespace bp::conformance
