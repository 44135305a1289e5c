// Oracles of the ops whose results or inputs are places of elements. Every index is in range.
#pragma once

#include <cstdint>
#include <utility>

#include "conformance/reference/array.hpp"
#include "conformance/reference/reduction.hpp"
#include "conformance/reference/selection.hpp"

namespace bp::conformance::reference {

struct Places {
  Array<int64_t> indices;  // (elements, axes). The rows behind the used ones are -1.
  int64_t count = 0;       // Used rows.
};

// Returns the places of the elements that differ from 0, in row-major order.
template <typename N>
Places nonzero(const Array<N>& x) {
  const auto axes = static_cast<int64_t>(x.shape.size());
  Places found{Array<int64_t>({x.size(), axes})};
  std::fill(found.indices.data.begin(), found.indices.data.end(), -1);
  for (int64_t i = 0; i < x.size(); ++i) {
    if (x[i] == N(0)) continue;
    const Shape place = coordinates(i, x.shape);
    for (int64_t axis = 0; axis < axes; ++axis) {
      found.indices[found.count * axes + axis] = place[static_cast<size_t>(axis)];
    }
    ++found.count;
  }
  return found;
}

template <typename N>
struct Selected {
  Array<N> values;  // As many as the mask has elements. Those behind the used ones are `unused`.
  int64_t count = 0;
};

template <typename N>
Selected<N> masked_select(const Array<N>& x, const Array<int64_t>& mask, N unused = N(0)) {
  Selected<N> found{Array<N>({x.size()})};
  std::fill(found.values.data.begin(), found.values.data.end(), unused);
  for (int64_t i = 0; i < x.size(); ++i) {
    if (mask[i] != 0) found.values[found.count++] = x[i];
  }
  return found;
}

// Counts the elements of the row of `sorted` in front of which a value is not to be inserted. It
// looks at each of them. Rows with one axis serve all values.
template <typename N>
Array<int64_t> searchsorted(const Array<N>& sorted, const Array<N>& values, bool is_right) {
  const int64_t length = sorted.shape.back();
  const int64_t values_per_row =
      sorted.shape.size() == 1 ? values.size() : (values.shape.empty() ? 1 : values.shape.back());
  Array<int64_t> y(values.shape);
  for (int64_t i = 0; i < values.size(); ++i) {
    const int64_t row = i / values_per_row;
    for (int64_t place = 0; place < length; ++place) {
      const N element = sorted[row * length + place];
      const bool is_before =
          is_right ? !is_larger(element, values[i]) : is_larger(values[i], element);
      if (is_before) ++y[i];
    }
  }
  return y;
}

// Calls combine(element of x, element of src) for each element of the slices of src. Slice i of src
// along the axis belongs to slice indices[i] of x.
template <typename N, typename Combine>
Array<N> combine_slices(Array<N> x, const Array<int64_t>& indices, const Array<N>& src, size_t axis,
                        Combine combine) {
  for (int64_t i = 0; i < src.size(); ++i) {
    Shape place = coordinates(i, src.shape);
    place[axis] = nearest_index(indices[place[axis]], x.shape[axis]);
    N& target = x[flat_index(place, x.shape)];
    target = combine(target, src[i]);
  }
  return x;
}

template <typename N>
Array<N> index_add(const Array<N>& x, const Array<int64_t>& indices, const Array<N>& src,
                   size_t axis) {
  return combine_slices(x, indices, src, axis, [](N total, N value) { return total + value; });
}

// The first `indexed_ndim` axes of x count as one.
template <typename N>
Array<N> index_put(Array<N> x, const Array<int64_t>& indices, Array<N> values, size_t indexed_ndim,
                   bool accumulates) {
  const Shape shape = x.shape;
  const auto extents = std::span(shape);
  const int64_t outer = element_count(extents.first(indexed_ndim));
  const int64_t inner = element_count(extents.subspan(indexed_ndim));
  x.shape = {outer, inner};
  values.shape = {indices.size(), inner};
  Array<N> y = combine_slices(std::move(x), indices, values, 0, [=](N total, N value) {
    return accumulates ? total + value : value;
  });
  y.shape = shape;
  return y;
}

}  // namespace bp::conformance::reference
