// The oracle of the op norm. On Bounded it gives the bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "conformance/reference/reduction.hpp"
#include "conformance/reference/variance.hpp"

namespace bp::conformance::reference {

// Returns the largest or the smallest of some sizes, or NaN if one of them is NaN. The largest of
// none is 0.
template <typename N>
N extreme_size(const std::vector<N>& sizes, bool wants_largest) {
  if (sizes.empty()) return N(0);
  return wants_largest ? *std::max_element(sizes.begin(), sizes.end(),
                                           [](N a, N b) { return is_larger(b, a); })
                       : *std::min_element(sizes.begin(), sizes.end(), is_smaller<N>);
}

// The elements are divided by `scale`, so that their powers neither overflow nor vanish together.
template <typename N>
N scaled_norm(const std::vector<N>& sizes, double p, N scale) {
  std::vector<N> terms;
  for (const N& size : sizes) {
    const N ratio = size / scale;
    terms.push_back(p == 2 ? ratio * ratio : primitive::pow(ratio, constant<N>(p)));
  }
  const N total = sum_of(std::span<const N>(terms));
  return scale * (p == 2 ? primitive::sqrt(total) : primitive::pow(total, N(1) / constant<N>(p)));
}

template <typename N>
N norm_of(std::vector<N> sizes, double p) {
  for (N& size : sizes) size = primitive::abs(size);
  if (p == 0) {
    const auto is_nonzero = [](const N& size) { return !(size == N(0)); };
    return N(static_cast<double>(std::ranges::count_if(sizes, is_nonzero)));
  }
  const N extreme = extreme_size(sizes, p > 0);
  const double nearest = primitive::nearest(extreme);
  // A number that is not finite is an element, and is the result in the limit too.
  if (std::isinf(p) || std::isnan(nearest) || std::isinf(nearest)) return extreme;
  if (p == 1) return sum_of(std::span<const N>(sizes));
  if (nearest == 0) return N(0);
  return scaled_norm(sizes, p, extreme);
}

template <typename N>
Array<N> norm(const Array<N>& x, const Shape& axes, double p, bool keepdims) {
  Array<N> y(reduced(x.shape, axes, keepdims));
  const auto groups = reduced_groups(x, axes);
  for (size_t i = 0; i < groups.size(); ++i) y.data[i] = norm_of(groups[i], p);
  return y;
}

}  // namespace bp::conformance::reference
