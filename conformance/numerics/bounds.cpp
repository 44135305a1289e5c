#include "conformance/numerics/bounds.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {
namespace {

// Returns the type in which `dtype` is computed. Narrow floats are computed in f32 and have its
// bounds.
bp_dtype compute_type(bp_dtype dtype) {
  return dtype == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
}

double exp_ulps(bp_dtype dtype) { return dtype == BP_F64 ? kExpUlps<53> : kExpUlps<24>; }
double divide_ulps(bp_dtype dtype) { return dtype == BP_F64 ? kDivideUlps<53> : kDivideUlps<24>; }
double smallest_normal(bp_dtype dtype) { return float_format(dtype)->smallest_normal(); }
bool is_relaxed(bp_dtype dtype, const Numerics& numerics) {
  return numerics.relaxed && dtype != BP_F64;
}
double unit(bp_dtype dtype) { return float_format(compute_type(dtype))->unit_roundoff(); }

// The values that the formulas of a softmax row share.
struct Row {
  double peak;         // The largest element.
  double mean_spread;  // sum of p_j * (peak - x_j).
  double total;        // Z, the sum of exp(x_j - peak).
};

Row describe(std::span<const double> x) {
  Row row{*std::max_element(x.begin(), x.end()), 0, 0};
  for (const double value : x) row.total += std::exp(value - row.peak);
  for (const double value : x) {
    const double p = std::exp(value - row.peak) / row.total;
    if (p > 0) row.mean_spread += p * (row.peak - value);
  }
  return row;
}

}  // namespace

Numerics resolve_numerics(const bp_numerics* declared, bp_dtype dtype) {
  Numerics numerics;
  if (dtype == BP_F64) {
    numerics.unit = numerics.accumulator = 0x1p-53;
    numerics.underflow = 0x1p-1074;
    numerics.smallest_normal = smallest_normal(BP_F64);
    numerics.largest = float_format(BP_F64)->largest();
  }
  if (declared == nullptr) return numerics;
  if (const FloatFormat* format = float_format(declared->accumulator)) {
    numerics.accumulator = format->unit_roundoff();
    numerics.underflow = format->smallest_subnormal();
    numerics.smallest_normal = format->smallest_normal();
    numerics.largest = format->largest();
  }
  if (declared->accumulator_bits != 0) {
    numerics.accumulator = std::ldexp(1.0, -static_cast<int>(declared->accumulator_bits));
  }
  // A sum of terms of one sign stops to grow near 2^bits of them, which is within the long sums.
  numerics.linear_growth = numerics.accumulator > 0x1p-17;
  constexpr double kProducts[] = {0, 0x1p-10, 0x1p-7, 0x1.8p-15};
  if (declared->products < 4) numerics.product = kProducts[declared->products];
  numerics.faithful = declared->rounding == BP_ROUNDING_FAITHFUL;
  numerics.flush_inputs = (declared->flush & BP_FLUSH_INPUTS) != 0;
  numerics.flush_outputs = (declared->flush & BP_FLUSH_OUTPUTS) != 0;
  numerics.saturates = declared->overflow == BP_OVERFLOW_SATURATE;
  numerics.relaxed = declared->math == BP_MATH_RELAXED;
  numerics.any_tie = declared->tie == BP_TIE_ANY;
  if (numerics.flush_outputs) {
    numerics.underflow = float_format(compute_type(dtype))->smallest_normal();
  }
  return numerics;
}

double sum_growth(double count) { return std::min(count + 2, kLambda * std::sqrt(count)); }

double divide_bound(bp_dtype dtype, double r, const Numerics& numerics) {
  return numerics.relaxed ? 2.5 * ulp(compute_type(dtype), r) : 0;
}

double sqrt_bound(bp_dtype dtype, double r, const Numerics& numerics) {
  return numerics.relaxed ? kRelaxedSqrtUlps * ulp(compute_type(dtype), r) : 0;
}

double exp_bound(bp_dtype dtype, double x, double r, const Numerics& numerics) {
  const double more = is_relaxed(dtype, numerics) ? kRelaxedExpUlps * std::fabs(x) : 0;
  return (exp_ulps(dtype) + more) * ulp(compute_type(dtype), r);
}

double log_bound(bp_dtype dtype, double x, double r, const Numerics& numerics) {
  const double ulps = dtype == BP_F64 ? kLogUlps<53> : kLogUlps<24>;
  const bool is_near_one = x >= 0.5 && x <= 2;
  const double absolute = is_relaxed(dtype, numerics) && is_near_one ? kRelaxedLogNearOne : 0;
  return ulps * ulp(compute_type(dtype), r) + absolute;
}

double tanh_bound(bp_dtype dtype, double r) {
  return (dtype == BP_F64 ? 4 : 5) * ulp(compute_type(dtype), r);
}

double erfinv_bound(bp_dtype dtype, double r) { return function_bound(dtype, r, kErfinvUlps); }

double function_bound(bp_dtype dtype, double r, double ulps) {
  return ulps * ulp(compute_type(dtype), r);
}

// A kernel may use erfc, and compute it by exp(-x^2 / 2). A rounding of the argument becomes an
// error of the result that grows with x^2, and so does the error of a relaxed exp.
double gelu_bound(bp_dtype dtype, double x, const Numerics& numerics) {
  const double relaxed = is_relaxed(dtype, numerics) ? kRelaxedExpUlps : 0;
  if (x < 0) {
    const double r = 0.5 * x * std::erfc(-x * M_SQRT1_2);
    const double part = r == 0 ? 0 : std::fabs(r) * (36 + (2 + relaxed) * x * x);
    return unit(dtype) * part + smallest_normal(dtype);
  }
  // exp(-x^2 / 2) * x^2 is below 1.
  const double factor = 16 + 3 * (1 + std::erf(x * M_SQRT1_2)) + relaxed;
  return unit(dtype) * x * factor + smallest_normal(dtype);
}

double sum_bound(double magnitude, double count, const Numerics& numerics) {
  if (numerics.linear_growth) return linear_sum_bound(magnitude, count, numerics);
  return magnitude * (numerics.product + sum_growth(count) * numerics.accumulator) +
         count * numerics.underflow;
}

double linear_sum_bound(double magnitude, double count, const Numerics& numerics) {
  return magnitude * (numerics.product + (count + 2) * numerics.accumulator) +
         count * numerics.underflow;
}

double product_bound(double magnitude, double count, const Numerics& numerics) {
  const double n = std::max(count - 1, 0.0), u = numerics.accumulator;
  const double certain = std::expm1(n * std::log1p(u));
  if (numerics.linear_growth) return magnitude * certain;
  const double likely = std::expm1(kLambda * std::sqrt(n) * u + n * u * u / (1 - u));
  return magnitude * std::min(certain, likely);
}

double collective_bound(bp_dtype dtype, uint32_t ranks, double magnitude) {
  const double u = float_format(dtype)->unit_roundoff();
  return std::expm1((ranks + 1) * std::log1p(u)) * magnitude;
}

std::vector<double> softmax_bounds(std::span<const double> x, std::span<const double> r,
                                   bp_dtype dtype) {
  const Row row = describe(x);
  const double e = exp_ulps(dtype);
  const double common = 2 * e + row.mean_spread + 2 * e +
                        sum_growth(static_cast<double>(x.size())) + 2 * divide_ulps(dtype) + 2;
  std::vector<double> bounds(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double relative = unit(dtype) * (common + (row.peak - x[i]));
    bounds[i] = r[i] == 0 ? 0 : r[i] * relative;
    bounds[i] += float_format(dtype)->smallest_normal();
  }
  return bounds;
}

std::vector<double> log_softmax_bounds(std::span<const double> x, std::span<const double> r,
                                       bp_dtype dtype) {
  const Row row = describe(x);
  const double e = exp_ulps(dtype);
  const double common = 2 * e * std::fabs(std::log(row.total)) + 2 * e + row.mean_spread +
                        sum_growth(static_cast<double>(x.size())) + 2;
  std::vector<double> bounds(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    bounds[i] = unit(dtype) * ((row.peak - x[i]) + common + 2 * std::fabs(r[i]));
  }
  return bounds;
}

double norm_mean_bound(const NormRow& row, bp_dtype dtype) {
  if (row.mean_magnitude == 0) return 0;
  return (sum_growth(row.count) + 1) * unit(dtype) * row.mean_magnitude;
}

namespace {

// Returns the relative error of var + eps, computed in two passes.
double variance_error(const NormRow& row, bp_dtype dtype) {
  const double shift = norm_mean_bound(row, dtype) * row.rstd;
  return (sum_growth(row.count) + 4) * unit(dtype) + shift * shift;
}

}  // namespace

double norm_variance_bound(const NormRow& row, double variance, bp_dtype dtype) {
  const double shift = norm_mean_bound(row, dtype);
  const double subnormal = float_format(compute_type(dtype))->smallest_subnormal();
  return (sum_growth(row.count) + 4) * unit(dtype) * variance + shift * shift + subnormal;
}

double norm_rstd_bound(const NormRow& row, bp_dtype dtype) {
  return row.rstd * (0.5 * variance_error(row, dtype) + 8 * unit(dtype));
}

double norm_bound(const NormRow& row, double x, double gamma, double beta, double r,
                  bp_dtype dtype) {
  const double u = unit(dtype);
  const double relative = 0.5 * variance_error(row, dtype) + 8 * u;
  const double centered =
      norm_mean_bound(row, dtype) + u * std::fabs(x) + std::fabs(x - row.mean) * relative;
  // The normalized number is rounded before it is scaled, by half a subnormal if it is one.
  const double subnormal = 0.5 * float_format(dtype)->smallest_subnormal();
  return std::fabs(gamma) * (row.rstd * centered + subnormal) +
         3 * u * (std::fabs(r) + std::fabs(beta));
}

AttentionBounds attention_bounds(std::span<const double> scores,
                                 std::span<const double> score_bounds, bp_dtype dtype) {
  AttentionBounds bounds;
  if (scores.empty()) return bounds;
  const Row row = describe(scores);
  const double e = exp_ulps(dtype), u = unit(dtype);
  const double off = *std::max_element(score_bounds.begin(), score_bounds.end());
  const double growth = sum_growth(static_cast<double>(scores.size()));
  const double common = 4 * e + row.mean_spread + growth + 2 * divide_ulps(dtype) + 2;
  for (const double score : scores) {
    const double spread = score == -HUGE_VAL ? 0 : row.peak - score;
    bounds.relative.push_back(2 * off + u * (common + spread + growth));
  }
  const double scale = std::log(row.total);
  bounds.lse = off + u * (2 * e * std::fabs(scale) + 2 * e + row.mean_spread + growth + 2 +
                          2 * std::fabs(row.peak + scale));
  return bounds;
}

}  // namespace bp::conformance
