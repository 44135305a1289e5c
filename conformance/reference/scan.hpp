// Oracles of running sums, products, extremes and logarithms of sums of exponentials along an axis,
// and their bounds.
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "conformance/reference/reduction.hpp"

namespace bp::conformance::reference {

struct ScanRule {
  size_t axis = 0;
  bool is_exclusive = false;
  bool is_reverse = false;
};

// Makes a Running for each line. It calls take(running, i) for the elements of the line in order,
// and give(running, i) where `running` has what result i comes from.
template <class Running, typename Take, typename Give>
void scan_lines(const Shape& shape, const ScanRule& rule, Take take, Give give) {
  const AxisView view(shape, rule.axis);
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    Running running;
    for (int64_t step = 0; step < view.extent; ++step) {
      const int64_t i = view.at(outer, rule.is_reverse ? view.extent - 1 - step : step, inner);
      if (rule.is_exclusive) give(running, i);
      take(running, i);
      if (!rule.is_exclusive) give(running, i);
    }
  });
}

template <typename N>
Array<N> running_sums(const Array<N>& x, const ScanRule& rule) {
  struct Running {
    N total = N(0);
  };
  Array<N> y(x.shape);
  scan_lines<Running>(
      x.shape, rule, [&](Running& sum, int64_t i) { sum.total = sum.total + x[i]; },
      [&](const Running& sum, int64_t i) { y[i] = sum.total; });
  return y;
}

// Each sum has the bound of R1 for as many terms as it has.
template <typename N>
AddedBounds running_sum_bounds(const Array<N>& x, const ScanRule& rule, const Numerics& numerics) {
  struct Running {
    double magnitude = 0, count = 0;
  };
  AddedBounds found{std::vector<double>(x.data.size()), std::vector<double>(x.data.size())};
  scan_lines<Running>(
      x.shape, rule,
      [&](Running& sum, int64_t i) {
        sum.magnitude += std::fabs(primitive::nearest(x[i]));
        ++sum.count;
      },
      [&](const Running& sum, int64_t i) {
        found.magnitude[static_cast<size_t>(i)] = sum.magnitude;
        found.bounds[static_cast<size_t>(i)] = sum_bound(sum.magnitude, sum.count, numerics);
      });
  return found;
}

// The product of what was taken so far. Integers wrap, and other numbers neither overflow nor
// vanish on the way.
template <typename N>
struct RunningProduct {
  void take(N factor) { product.take(factor); }
  N value() const { return product.value(); }

  WideProduct<N> product;
};

template <>
struct RunningProduct<Integer> {
  void take(Integer factor) { product = product * factor; }
  Integer value() const { return product; }

  Integer product = Integer(1);
};

template <typename N>
Array<N> running_products(const Array<N>& x, const ScanRule& rule) {
  using Running = RunningProduct<N>;
  Array<N> y(x.shape);
  scan_lines<Running>(
      x.shape, rule, [&](Running& product, int64_t i) { product.take(x[i]); },
      [&](const Running& product, int64_t i) { y[i] = product.value(); });
  return y;
}

// Each product has the bound of R2 for as many factors as it has.
template <typename N>
ProductBounds running_product_bounds(const Array<N>& x, const Array<N>& y, const ScanRule& rule,
                                     const Numerics& numerics) {
  struct Running {
    Factors factors;
    double count = 0;
  };
  ProductBounds found{std::vector<double>(x.data.size()), std::vector<double>(x.data.size()),
                      std::vector<bool>(x.data.size())};
  scan_lines<Running>(
      x.shape, rule,
      [&](Running& product, int64_t i) {
        product.factors.take(primitive::nearest(x[i]));
        ++product.count;
      },
      [&](const Running& product, int64_t i) {
        const ProductBound own =
            bound_of(product.factors, primitive::nearest(y[i]), product.count, numerics);
        found.bounds[static_cast<size_t>(i)] = own.bound;
        found.magnitude[static_cast<size_t>(i)] = own.magnitude;
        found.is_lost[static_cast<size_t>(i)] = own.is_lost;
      });
  return found;
}

// ---- Extremes -------------------------------------------------------------------------------- //

template <typename N>
struct RunningExtremes {
  Array<N> values;
  Array<int64_t> indices;  // Of the last element so far that equals the value.
};

// Each value is that of the last element so far which no element so far is beyond.
template <typename N, typename IsBeyond>
RunningExtremes<N> running_extremes(const Array<N>& x, size_t axis, IsBeyond is_beyond) {
  RunningExtremes<N> found{Array<N>(x.shape), Array<int64_t>(x.shape)};
  const AxisView view(x.shape, axis);
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    int64_t best = 0;
    for (int64_t i = 0; i < view.extent; ++i) {
      const int64_t here = view.at(outer, i, inner);
      if (!is_beyond(x[view.at(outer, best, inner)], x[here])) best = i;
      found.values[here] = x[view.at(outer, best, inner)];
      found.indices[here] = best;
    }
  });
  return found;
}

// ---- Logarithms of sums of exponentials ------------------------------------------------------ //

// The sum of exp(x) for the x that were taken, over exp(largest).
template <typename N>
struct RunningExponentials {
  void take(N x) {
    using std::isnan;
    ++count;
    if (isnan(x) || x == N(HUGE_VAL)) {
      is_open = true;
      if (!isnan(largest)) largest = x;
    }
    if (is_open || x == N(-HUGE_VAL)) return;
    if (is_empty || largest < x) {
      const N shrink = is_empty ? N(0) : primitive::exp(largest - x);
      const double by = primitive::nearest(shrink);
      const double rise = is_empty ? 0 : primitive::nearest(x - largest);
      distance = by * (distance + primitive::nearest(total) * rise);
      total = total * shrink;
      largest = x;
      is_empty = false;
    }
    const N term = primitive::exp(x - largest);
    distance += primitive::nearest(term) * std::fabs(primitive::nearest(x - largest));
    total = total + term;
  }

  N total = N(0);
  N largest = N(0);
  double distance = 0;  // The sum of each term times the distance of its x from the largest one.
  double count = 0;
  bool is_empty = true;  // No finite x was taken.
  bool is_open = false;  // NaN or +inf was taken: `largest` is the result.
};

template <typename N>
Array<N> running_logsumexps(const Array<N>& x, const ScanRule& rule) {
  Array<N> y(x.shape);
  scan_lines<RunningExponentials<N>>(
      x.shape, rule, [&](RunningExponentials<N>& sum, int64_t i) { sum.take(x[i]); },
      [&](const RunningExponentials<N>& sum, int64_t i) {
        if (sum.is_open) {
          y[i] = sum.largest;
        } else {
          y[i] = sum.is_empty ? N(-HUGE_VAL) : sum.largest + primitive::log(sum.total);
        }
      });
  return y;
}

// A kernel may shift the terms to each of the elements on the way, so that a term is a product of
// as many exponentials as it has terms beside it. The arguments of these add up to the distance
// from the largest element. `B` is the number type that carries the errors.
template <typename B, typename N>
std::vector<double> running_logsumexp_bounds(const Array<N>& x, const ScanRule& rule,
                                             const Numerics& numerics) {
  constexpr double kStepUlps = 4;  // Of an exponential and a product.
  std::vector<double> bounds(x.data.size());
  scan_lines<RunningExponentials<N>>(
      x.shape, rule, [&](RunningExponentials<N>& sum, int64_t i) { sum.take(x[i]); },
      [&](const RunningExponentials<N>& sum, int64_t i) {
        if (sum.is_open || sum.is_empty) return;
        const double total = primitive::nearest(sum.total);
        const double steps = std::fmin(sum.count + 2, 8 * std::sqrt(sum.count));
        const double carried = B::kUnit * (2 * kStepUlps * steps * total + 2 * sum.distance);
        B all(total);
        all.error = carried + sum_bound(total + carried, sum.count, numerics);
        const B y = B(primitive::nearest(sum.largest)) + log(all);
        bounds[static_cast<size_t>(i)] = y.error;
      });
  return bounds;
}

}  // namespace bp::conformance::reference
