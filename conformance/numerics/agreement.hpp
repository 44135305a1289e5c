// How well two kernels of an op that was described at run time agree: to half the bits of the
// mantissa, relative to the largest result. [OP-8]
#pragma once

#include <algorithm>
#include <cmath>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {

// The largest difference between two results of one call, from all values of one of them.
class Agreement {
 public:
  explicit Agreement(bp_dtype dtype)
      : relative_(is_float(dtype) ? std::sqrt(ulp(dtype, 1.0)) : 0) {}

  // Takes a value of the result with which another one is compared.
  void add(double value) {
    if (std::isfinite(value)) largest_ = std::max(largest_, std::abs(value));
  }

  bool holds(double a, double b) const {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::abs(a - b) <= relative_ * largest_;
  }

 private:
  double relative_;
  double largest_ = 0;
};

}  // namespace bp::conformance
