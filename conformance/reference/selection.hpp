// Oracles of the ops that choose and move elements. Every index is in range.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "conformance/reference/array.hpp"
#include "conformance/reference/reduction.hpp"

namespace bp::conformance::reference {

// Concatenates the tensors along `axis`; there is at least one.
template <typename N>
Array<N> cat(const std::vector<Array<N>>& xs, size_t axis) {
  Shape shape = xs.front().shape;
  shape[axis] = 0;
  for (const Array<N>& x : xs) shape[axis] += x.shape[axis];
  Array<N> y(shape);
  int64_t start = 0;
  for (const Array<N>& x : xs) {
    for (int64_t i = 0; i < x.size(); ++i) {
      Shape place = coordinates(i, x.shape);
      place[axis] += start;
      y[flat_index(place, shape)] = x[i];
    }
    start += x.shape[axis];
  }
  return y;
}

// The functions below give a tensor without axes one axis, also in their results.

// An index out of range leaves a result undefined, or acts as the nearest one; the oracle always
// reads the nearest element.
inline int64_t nearest_index(int64_t index, int64_t extent) {
  return std::max<int64_t>(0, std::min(index, extent - 1));
}

template <typename N>
Array<N> gather(const Array<N>& given, const Array<int64_t>& chosen, size_t axis) {
  const Array<N> x = at_least_1d(given);
  const Array<int64_t> indices = at_least_1d(chosen);
  Array<N> y(indices.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    Shape place = coordinates(i, indices.shape);
    place[axis] = nearest_index(indices[i], x.shape[axis]);
    y[i] = x[flat_index(place, x.shape)];
  }
  return y;
}

// Calls combine(element of x, element of src) in row-major order of src. If indices are equal, the
// last one along the axis comes last.
template <typename N, typename Combine>
Array<N> scatter_with(Array<N> x, Array<int64_t> indices, const Array<N>& src, size_t axis,
                      Combine combine) {
  x = at_least_1d(std::move(x));
  indices = at_least_1d(std::move(indices));
  for (int64_t i = 0; i < src.size(); ++i) {
    Shape place = coordinates(i, indices.shape);
    place[axis] = nearest_index(indices[i], x.shape[axis]);
    N& target = x[flat_index(place, x.shape)];
    target = combine(target, src[i]);
  }
  return x;
}

template <typename N>
Array<N> scatter(const Array<N>& x, const Array<int64_t>& indices, const Array<N>& src,
                 size_t axis) {
  return scatter_with(x, indices, src, axis, [](N, N value) { return value; });
}

template <typename N>
Array<N> scatter_sum(const Array<N>& x, const Array<int64_t>& indices, const Array<N>& src,
                     size_t axis) {
  return scatter_with(x, indices, src, axis, [](N total, N value) { return total + value; });
}

template <typename N>
Array<N> index_select(const Array<N>& x, const Array<int64_t>& indices, size_t axis) {
  Shape shape = x.shape;
  shape[axis] = indices.size();
  Array<N> y(shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    Shape place = coordinates(i, shape);
    place[axis] = nearest_index(indices[place[axis]], x.shape[axis]);
    y[i] = x[flat_index(place, x.shape)];
  }
  return y;
}

template <typename N>
struct Sorted {
  Array<N> values;
  Array<int64_t> indices;
};

// Returns the first `count` elements of each line along `axis`, sorted. Equal elements keep their
// order, and NaN is larger than every number. The result of an x without axes has one axis.
template <typename N>
Sorted<N> sorted(const Array<N>& given, size_t axis, int64_t count, bool is_descending) {
  const Array<N> x = at_least_1d(given);
  Shape shape = x.shape;
  shape[axis] = count;
  Sorted<N> result{Array<N>(shape), Array<int64_t>(shape)};
  const AxisView from(x.shape, axis), to(shape, axis);
  for_each_line(from, [&](int64_t outer, int64_t inner) {
    const auto value = [&](int64_t i) { return x[from.at(outer, i, inner)]; };
    std::vector<int64_t> order(static_cast<size_t>(from.extent));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return is_descending ? is_larger(value(a), value(b)) : is_larger(value(b), value(a));
    });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t chosen = order[static_cast<size_t>(i)];
      result.values[to.at(outer, i, inner)] = value(chosen);
      result.indices[to.at(outer, i, inner)] = chosen;
    }
  });
  return result;
}

}  // namespace bp::conformance::reference
