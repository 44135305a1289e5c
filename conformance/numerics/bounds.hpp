// Bounds on |y - r| before the final rounding, by error class. The formulas stand in the class
// table of the numerics chapter of the documentation; r is the exact value and S the sum of the
// absolute values of the terms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backplane/base.h"
#include "conformance/numerics/numerics.hpp"

namespace bp::conformance {

// The factor of the statistical bound of a sum: a right sum exceeds it with a chance below
// 2 * K * exp(-kLambda^2 / 2).
constexpr double kLambda = 8;

// Errors of exp, log and division in ulp, by the precision of the compute type.
template <int kBits>
constexpr double kExpUlps = kBits == 53 ? 2 : 3;
template <int kBits>
constexpr double kLogUlps = kBits == 53 ? 2 : 3;
template <int kBits>
constexpr double kDivideUlps = kBits == 53 ? 0.5 : 2.5;

// The growth of the error of a sum of `count` terms, in units of u * S.
double sum_growth(double count);

// E1d and E2, for a result `r` of `dtype`; x is the argument.
double divide_bound(bp_dtype dtype, double r, const Numerics& numerics);
double sqrt_bound(bp_dtype dtype, double r, const Numerics& numerics);
double exp_bound(bp_dtype dtype, double x, double r, const Numerics& numerics);
double log_bound(bp_dtype dtype, double x, double r, const Numerics& numerics);

// R1: a sum of `count` products or terms.
double sum_bound(double magnitude, double count, const Numerics& numerics);
// The part of it that is a certain bound, without statistics; beyond it a relaxed kernel fails.
double linear_sum_bound(double magnitude, double count, const Numerics& numerics);

// R4 and R4': one row of softmax or log_softmax. `x` is the row, `r` its exact result.
std::vector<double> softmax_bounds(std::span<const double> x, std::span<const double> r,
                                   bp_dtype dtype);
std::vector<double> log_softmax_bounds(std::span<const double> x, std::span<const double> r,
                                       bp_dtype dtype);

}  // namespace bp::conformance
