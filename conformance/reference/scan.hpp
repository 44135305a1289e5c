// Oracles of running sums and products along an axis, and their bounds.
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

}  // namespace bp::conformance::reference
