// Oracles of the reductions.
#pragma once

#include <algorithm>
#include <cmath>

#include "conformance/numerics/bounded.hpp"
#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

// The shape that is left: extents of 1 in place of the axes with `keepdims`, else without them.
inline Shape reduced(const Shape& shape, const Shape& axes, bool keepdims) {
  Shape result;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const bool is_reduced =
        std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
    if (!is_reduced) result.push_back(shape[axis]);
    if (is_reduced && keepdims) result.push_back(1);
  }
  return result;
}

// Calls combine(result element, x element) for each element of x, in row-major order.
template <typename N, typename Combine>
Array<N> reduce(const Array<N>& x, const Shape& axes, bool keepdims, N start, Combine combine) {
  Array<N> result(reduced(x.shape, axes, keepdims));
  std::fill(result.data.begin(), result.data.end(), start);
  const Shape kept = reduced(x.shape, axes, true);
  for (int64_t i = 0; i < x.size(); ++i) {
    Shape place = coordinates(i, x.shape);
    for (const int64_t axis : axes) place[static_cast<size_t>(axis)] = 0;
    N& target = result[flat_index(place, kept)];
    target = combine(target, x[i]);
  }
  return result;
}

// A sum over no axes is x, whose -0 no sum has.
template <typename N>
Array<N> sum(const Array<N>& x, const Shape& axes, bool keepdims) {
  if (axes.empty()) return x;
  return reduce(x, axes, keepdims, N(0), [](N total, N value) { return total + value; });
}

// The mean of no elements is NaN.
template <typename N>
Array<N> mean(const Array<N>& x, const Shape& axes, bool keepdims) {
  Array<N> result = sum(x, axes, keepdims);
  const int64_t count = result.size() == 0 ? 1 : x.size() / result.size();
  for (N& value : result.data) value = value / N(static_cast<double>(count));
  return result;
}

// NaN is larger than every number.
template <typename N>
bool is_larger(N a, N b) {
  using std::isnan;
  if (isnan(b)) return false;
  return isnan(a) || b < a;
}

// The index along `axis` of the first of the largest elements; every line has one.
template <typename N>
Array<int64_t> argmax(const Array<N>& x, int64_t axis, bool keepdims) {
  Array<int64_t> result(reduced(x.shape, {axis}, keepdims));
  const AxisView view(x.shape, static_cast<size_t>(axis));
  for_each_line(view, [&](int64_t outer, int64_t inner) {
    int64_t best = 0;
    for (int64_t i = 1; i < view.extent; ++i) {
      if (is_larger(x[view.at(outer, i, inner)], x[view.at(outer, best, inner)])) best = i;
    }
    result[outer * view.inner_size + inner] = best;
  });
  return result;
}

// Every group of elements has at least one.
template <typename N>
Array<N> amax(const Array<N>& x, const Shape& axes, bool keepdims) {
  Array<N> result(reduced(x.shape, axes, keepdims));
  std::vector<bool> is_set(result.data.size());
  const Shape kept = reduced(x.shape, axes, true);
  for (int64_t i = 0; i < x.size(); ++i) {
    Shape place = coordinates(i, x.shape);
    for (const int64_t axis : axes) place[static_cast<size_t>(axis)] = 0;
    const int64_t target = flat_index(place, kept);
    if (!is_set[static_cast<size_t>(target)] || is_larger(x[i], result[target])) {
      result[target] = x[i];
    }
    is_set[static_cast<size_t>(target)] = true;
  }
  return result;
}

}  // namespace bp::conformance::reference
