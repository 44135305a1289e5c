#include "conformance/cases/ops/op_attention_bounds.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/product_errors.hpp"
#include "conformance/numerics/relaxed_row.hpp"

namespace bp::conformance::attention {
namespace {

using reference::Attention;

// The bounds of one query, from the exact scores of the keys that it sees.
struct QueryBounds {
  std::vector<int64_t> seen;
  std::vector<double> weights;  // The exact weights.
  AttentionBounds bounds;
};

QueryBounds bounds_of_query(const Attention<double>& a, const Attention<double>& magnitudes,
                            int64_t row, bp_dtype dtype, const Numerics& numerics) {
  QueryBounds query{a.seen_keys(row), {}, {}};
  std::vector<double> scores, score_bounds;
  Numerics of_scores = numerics;
  of_scores.product = input_product(dtype, numerics);
  for (const int64_t j : query.seen) {
    scores.push_back(a.score(row, j));
    const double magnitude = magnitudes.score(row, j);
    double bound = sum_bound(magnitude, static_cast<double>(a.width() + 1), of_scores) +
                   2 * numerics.unit * magnitude;
    // The slope of the cap is at most 1. The cap, its quotient and tanh are rounded.
    if (a.softcap != 0) bound += 16 * numerics.unit * std::fabs(a.capped(row, j));
    score_bounds.push_back(scores.back() == -HUGE_VAL ? 0 : bound);
  }
  // y is 0 if there are no weights, and lse is the sink.
  if (std::ranges::count(scores, -HUGE_VAL) == std::ssize(scores)) return {};
  if (a.sinks) {
    scores.push_back((*a.sinks)[a.head_of(row)]);
    score_bounds.push_back(0);
  }
  query.bounds = attention_bounds(scores, score_bounds, dtype);
  const RelaxedRow more = relaxed_row(scores, dtype, numerics);
  // The weights are computed, so that the products with v have the declared error in any dtype.
  for (size_t i = 0; i < scores.size(); ++i) {
    query.bounds.relative[i] += more.relative[i] + numerics.product;
  }
  query.bounds.lse += more.log;
  double peak = -HUGE_VAL, total = 0;
  for (const double score : scores) peak = std::fmax(peak, score);
  for (const double score : scores) total += std::exp(score - peak);
  for (const double score : scores) query.weights.push_back(std::exp(score - peak) / total);
  if (a.dropout_p == 0) return query;
  for (size_t i = 0; i < query.seen.size(); ++i) {
    query.weights[i] *= a.kept(row, query.seen[i]);
    query.bounds.relative[i] += 4 * numerics.unit;  // The factor is rounded, and the product.
  }
  return query;
}

}  // namespace

Bounds bounds_of(const Attention<double>& a, bp_dtype dtype, const Numerics& numerics) {
  Bounds bounds(2);
  Attention<double> magnitudes = a;
  magnitudes.q = absolute(a.q);
  magnitudes.k = absolute(a.k);
  if (a.bias) magnitudes.bias = absolute(*a.bias);
  magnitudes.scale = std::fabs(a.scale);
  magnitudes.softcap = 0;
  const double smallest = float_format(dtype)->smallest_normal();
  for (int64_t row = 0; row < a.row_count(); ++row) {
    const QueryBounds query = bounds_of_query(a, magnitudes, row, dtype, numerics);
    for (int64_t c = 0; c < a.value_width(); ++c) {
      // Products of subnormal values are rounded to whole multiples of the smallest number.
      double bound = static_cast<double>(query.seen.size()) * 2 * numerics.unit * smallest;
      for (size_t i = 0; i < query.seen.size(); ++i) {
        if (a.kept(row, query.seen[i]) == 0) continue;
        const double v = std::fabs(a.v[a.key_row(row, query.seen[i]) * a.value_width() + c]);
        const double subnormal = smallest * a.kept(row, query.seen[i]);
        bound += query.weights[i] * v * query.bounds.relative[i] + subnormal * v;
      }
      bounds[0].push_back(bound);
    }
    bounds[1].push_back(query.bounds.lse);
  }
  return bounds;
}

}  // namespace bp::conformance::attention
