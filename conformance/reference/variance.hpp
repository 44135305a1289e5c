// The oracle of the variance.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "conformance/numerics/bounded.hpp"
#include "conformance/reference/reduction.hpp"

namespace bp::conformance::reference {

// Returns the variance over axes, in two passes.
template <typename N>
Array<N> variance(const Array<N>& x, const Shape& axes, bool keepdims, int64_t correction) {
  Array<N> y(reduced(x.shape, axes, keepdims));
  std::vector<std::vector<N>> groups(y.data.size());
  for_each_reduced(x.shape, axes, [&](int64_t i, int64_t target) {
    groups[static_cast<size_t>(target)].push_back(x[i]);
  });
  for (size_t i = 0; i < groups.size(); ++i) {
    std::vector<N>& group = groups[i];
    const auto count = static_cast<int64_t>(group.size());
    const N mean = sum_of(std::span<const N>(group)) / N(static_cast<double>(count));
    for (N& element : group) {
      const N distance = element - mean;
      element = distance * distance;
    }
    const auto divisor = static_cast<double>(std::max<int64_t>(count - correction, 0));
    y.data[i] = sum_of(std::span<const N>(group)) / N(divisor);
  }
  return y;
}

}  // namespace bp::conformance::reference
