// What relaxed math adds to the bounds of a row of exponentials: classes R4, R4L and R6.
#pragma once

#include <span>
#include <vector>

#include "conformance/numerics/numerics.hpp"

namespace bp::conformance {

struct RelaxedRow {
  std::vector<double> relative;  // For each exponential, divided by their sum: relative to it.
  double log = 0;                // For the logarithm of the sum.
};

// `x` is the row. Strict math and f64 add nothing.
RelaxedRow relaxed_row(std::span<const double> x, bp_dtype dtype, const Numerics& numerics);

}  // namespace bp::conformance
