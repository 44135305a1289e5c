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

constexpr double kErfinvUlps = 8;

// The growth of the error of a sum of `count` terms, in units of u * S.
double sum_growth(double count);

// E1d and E2, for a result `r` of `dtype`; x is the argument.
double divide_bound(bp_dtype dtype, double r, const Numerics& numerics);
double sqrt_bound(bp_dtype dtype, double r, const Numerics& numerics);
double exp_bound(bp_dtype dtype, double x, double r, const Numerics& numerics);
double log_bound(bp_dtype dtype, double x, double r, const Numerics& numerics);

// E2 and E2c: tanh and the activations that are made of such functions.
double tanh_bound(bp_dtype dtype, double r);
double erfinv_bound(bp_dtype dtype, double r);
double sigmoid_bound(bp_dtype dtype, double x, double r);
double silu_bound(bp_dtype dtype, double x, double r);
double gelu_bound(bp_dtype dtype, double x);
double gelu_tanh_bound(bp_dtype dtype, double x);

// R1: a sum of `count` products or terms.
double sum_bound(double magnitude, double count, const Numerics& numerics);
// The part of it that is a certain bound, without statistics; beyond it a relaxed kernel fails.
double linear_sum_bound(double magnitude, double count, const Numerics& numerics);

// A reduction of floats over `ranks`, rounded after each step as collective.h allows it.
// `magnitude` is the sum of those of its terms, or that of a product.
double collective_bound(bp_dtype dtype, uint32_t ranks, double magnitude);

// R4 and R4': one row of softmax or log_softmax. `x` is the row, `r` its exact result.
std::vector<double> softmax_bounds(std::span<const double> x, std::span<const double> r,
                                   bp_dtype dtype);
std::vector<double> log_softmax_bounds(std::span<const double> x, std::span<const double> r,
                                       bp_dtype dtype);

// R5: layer and RMS norm of a row.
struct NormRow {
  double count = 0;           // N, the number of elements.
  double mean_magnitude = 0;  // The mean of |x|; 0 for RMS norm, which has no mean.
  double mean = 0, rstd = 0;  // Exact.
};
double norm_mean_bound(const NormRow& row, bp_dtype dtype);
double norm_rstd_bound(const NormRow& row, bp_dtype dtype);
double norm_bound(const NormRow& row, double x, double gamma, double beta, double r,
                  bp_dtype dtype);

// R6: one query of attention. `scores` are the exact ones of the keys that it sees, `score_bounds`
// the bounds on them, as of R1.
struct AttentionBounds {
  std::vector<double> relative;  // Of the weight of each key.
  double lse = 0;                // Of the logarithm of the sum of the exponentials.
};
AttentionBounds attention_bounds(std::span<const double> scores,
                                 std::span<const double> score_bounds, bp_dtype dtype);

}  // namespace bp::conformance
