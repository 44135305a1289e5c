// The oracle of the variance, and its bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "conformance/reference/reduction.hpp"

namespace bp::conformance::reference {

// The elements of each result.
template <typename N>
std::vector<std::vector<N>> reduced_groups(const Array<N>& x, const Shape& axes) {
  std::vector<std::vector<N>> groups(
      static_cast<size_t>(element_count(reduced(x.shape, axes, true))));
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    groups[static_cast<size_t>(target)].push_back(x[i]);
  });
  return groups;
}

template <typename N>
N mean_of(const std::vector<N>& group) {
  N total = N(0);
  for (const N& element : group) total = total + element;
  return total / N(static_cast<double>(group.size()));
}

// Returns the sum of the squared distances from the mean, over `divisor`.
template <typename N>
N spread_of(const std::vector<N>& group, double divisor) {
  const N mean = mean_of(group);
  N total = N(0);
  for (const N& element : group) total = total + (element - mean) * (element - mean);
  return total / N(divisor);
}

inline double variance_divisor(size_t count, int64_t correction) {
  return static_cast<double>(std::max<int64_t>(static_cast<int64_t>(count) - correction, 0));
}

template <typename N>
Array<N> variance(const Array<N>& x, const Shape& axes, bool keepdims, int64_t correction) {
  Array<N> y(reduced(x.shape, axes, keepdims));
  const auto groups = reduced_groups(x, axes);
  for (size_t i = 0; i < groups.size(); ++i) {
    y.data[i] = spread_of(groups[i], variance_divisor(groups[i].size(), correction));
  }
  return y;
}

// The bound is that of the variance of the elements, which the divisor makes larger.
template <typename N>
std::vector<double> variance_bounds(const Array<N>& x, const Shape& axes, int64_t correction,
                                    bp_dtype dtype) {
  std::vector<double> bounds;
  for (const std::vector<N>& group : reduced_groups(x, axes)) {
    const auto count = static_cast<double>(group.size());
    const double divisor = variance_divisor(group.size(), correction);
    if (count == 0 || divisor == 0) {
      bounds.push_back(0);
      continue;
    }
    NormRow row{.count = count};
    for (const N& element : group) {
      row.mean_magnitude += std::fabs(primitive::nearest(element)) / count;
    }
    const double spread = primitive::nearest(spread_of(group, count));
    bounds.push_back(norm_variance_bound(row, spread, dtype) * count / divisor);
  }
  return bounds;
}

}  // namespace bp::conformance::reference
