// The tensors of the oracles: a shape, and the elements in row-major order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace bp::conformance {

using Shape = std::vector<int64_t>;

inline int64_t element_count(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

template <typename N>
struct Array {
  Shape shape;
  std::vector<N> data;

  Array() = default;
  explicit Array(Shape extents) : shape(std::move(extents)) {
    data.resize(static_cast<size_t>(element_count(shape)));
  }

  int64_t size() const { return static_cast<int64_t>(data.size()); }
  int64_t extent(size_t axis) const { return shape[axis]; }
  N& operator[](int64_t index) { return data[static_cast<size_t>(index)]; }
  const N& operator[](int64_t index) const { return data[static_cast<size_t>(index)]; }
};

// Returns the tensor with an axis of one element if it has no axes, else the tensor itself.
template <typename N>
Array<N> at_least_1d(Array<N> x) {
  if (x.shape.empty()) x.shape = {1};
  return x;
}

// A tensor seen along one axis: element (outer, i, inner) lies at (outer * extent + i) * inner_size
// + inner. A tensor without axes has axis 0, which has one element.
struct AxisView {
  int64_t outer_size = 1, extent = 1, inner_size = 1;

  AxisView(std::span<const int64_t> shape, size_t axis)
      : outer_size(element_count(shape.first(axis))),
        extent(shape.empty() ? 1 : shape[axis]),
        inner_size(shape.empty() ? 1 : element_count(shape.subspan(axis + 1))) {}

  int64_t at(int64_t outer, int64_t i, int64_t inner) const {
    return (outer * extent + i) * inner_size + inner;
  }
};

// Calls visit(outer, inner) for each line along the axis.
template <typename Visit>
void for_each_line(const AxisView& view, Visit visit) {
  for (int64_t outer = 0; outer < view.outer_size; ++outer) {
    for (int64_t inner = 0; inner < view.inner_size; ++inner) visit(outer, inner);
  }
}

// Returns the coordinates of element `index` of a tensor.
inline Shape coordinates(int64_t index, std::span<const int64_t> shape) {
  Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return place;
}

inline int64_t flat_index(std::span<const int64_t> place, std::span<const int64_t> shape) {
  int64_t index = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) index = index * shape[axis] + place[axis];
  return index;
}

// Returns the tensor of the absolute values. An oracle that only adds and multiplies gives S, the
// sum of the absolute values of the terms, when it runs on these.
template <typename N>
Array<N> absolute(Array<N> x) {
  using std::abs;
  for (N& value : x.data) value = abs(value);
  return x;
}

}  // namespace bp::conformance
