// Bounds on |y - r| before the final rounding, by error class. docs/error_classes.md has the
// formulas and their sources; r is the exact value and S the sum of the absolute values of the
// terms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backplane/base.h"
#include "conformance/numerics/numerics.hpp"

namespace bp::conformance {

// The factor of the statistical bound of a sum. A right sum exceeds the bound with a chance below
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

// What relaxed math adds in f32: ulps of exp for each unit of its argument, and an absolute error
// of log near 1; and the ulps of its square root.
constexpr double kRelaxedExpUlps = 2, kRelaxedLogNearOne = 0x1p-21, kRelaxedSqrtUlps = 3;

// Returns the growth of the error of a sum of `count` terms, in units of u * S.
double sum_growth(double count);

// Return the bounds of E1d and E2 for a result `r` of `dtype`; x is the argument.
double divide_bound(bp_dtype dtype, double r, const Numerics& numerics);
double sqrt_bound(bp_dtype dtype, double r, const Numerics& numerics);
double exp_bound(bp_dtype dtype, double x, double r, const Numerics& numerics);
double log_bound(bp_dtype dtype, double x, double r, const Numerics& numerics);

// Return the bounds of E2: tanh and erfinv.
double tanh_bound(bp_dtype dtype, double r);
double erfinv_bound(bp_dtype dtype, double r);
// Returns the bound of E2 of another function, with an error of `ulps` in any dtype.
double function_bound(bp_dtype dtype, double r, double ulps);
// Returns the bound of gelu by the error function. The other functions of several steps have the
// bound that propagation gives.
double gelu_bound(bp_dtype dtype, double x, const Numerics& numerics = {});

// Returns the bound of R1: a sum of `count` products or terms.
double sum_bound(double magnitude, double count, const Numerics& numerics);
// Returns the part of the bound that is certain, without statistics. A relaxed kernel fails beyond
// it.
double linear_sum_bound(double magnitude, double count, const Numerics& numerics);

// Returns the bound of R2 without underflow: a product of `count` factors with this magnitude.
double product_bound(double magnitude, double count, const Numerics& numerics);

// Returns the bound of a reduction of floats over `ranks` that rounds after each step, as
// collective.h allows. `magnitude` is the sum of the magnitudes of the terms, or the magnitude of a
// product.
double collective_bound(bp_dtype dtype, uint32_t ranks, double magnitude);

// R4 and R4L: one row of softmax or log_softmax. `x` is the row, `r` its exact result.
std::vector<double> softmax_bounds(std::span<const double> x, std::span<const double> r,
                                   bp_dtype dtype);
std::vector<double> log_softmax_bounds(std::span<const double> x, std::span<const double> r,
                                       bp_dtype dtype);

// A row of class R5: layer norm and RMS norm.
struct NormRow {
  double count = 0;           // N, the number of elements.
  double mean_magnitude = 0;  // The mean of |x|; 0 for RMS norm, which has no mean.
  double mean = 0, rstd = 0;  // The exact mean and rstd.
};
double norm_mean_bound(const NormRow& row, bp_dtype dtype);
double norm_variance_bound(const NormRow& row, double variance, bp_dtype dtype);
double norm_rstd_bound(const NormRow& row, bp_dtype dtype);
double norm_bound(const NormRow& row, double x, double gamma, double beta, double r,
                  bp_dtype dtype);

// R6: one query of attention. `scores` are the exact scores of the keys that the query sees, and
// `score_bounds` are the R1 bounds on them.
struct AttentionBounds {
  std::vector<double> relative;  // The bound of the weight of each key.
  double lse = 0;                // The bound of the logarithm of the sum of the exponentials.
};
AttentionBounds attention_bounds(std::span<const double> scores,
                                 std::span<const double> score_bounds, bp_dtype dtype);

}  // namespace bp::conformance
