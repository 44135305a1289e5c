// Oracles of the ops that put elements into other places: flip, roll, tril, triu, pad, one_hot,
// masked_fill and tile. One loop over the result finds the place of each element in x.
#pragma once

#include <algorithm>
#include <utility>

#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

// Returns a tensor of `shape` whose element at a place p is value(p).
template <typename N, typename Value>
Array<N> filled_by_place(Shape shape, Value value) {
  Array<N> y(std::move(shape));
  for (int64_t i = 0; i < y.size(); ++i) y[i] = value(coordinates(i, y.shape));
  return y;
}

template <typename N>
Array<N> flip(const Array<N>& x, size_t axis) {
  return filled_by_place<N>(x.shape, [&](Shape place) {
    place[axis] = x.shape[axis] - 1 - place[axis];
    return x[flat_index(place, x.shape)];
  });
}

// Returns the remainder of a division that rounds down.
inline int64_t wrapped(int64_t index, int64_t extent) {
  const int64_t rest = index % extent;
  return rest < 0 ? rest + extent : rest;
}

template <typename N>
Array<N> roll(const Array<N>& x, int64_t shift, size_t axis) {
  return filled_by_place<N>(x.shape, [&](Shape place) {
    place[axis] = wrapped(place[axis] - shift, x.shape[axis]);
    return x[flat_index(place, x.shape)];
  });
}

enum class Triangle { kLower, kUpper };

// Elements outside of the triangle are `zero`.
template <typename N>
Array<N> triangle(const Array<N>& x, Triangle kept, int64_t diagonal, N zero) {
  return filled_by_place<N>(x.shape, [&](const Shape& place) {
    const int64_t above = place.back() - place[place.size() - 2];
    const bool is_kept = kept == Triangle::kLower ? above <= diagonal : above >= diagonal;
    return is_kept ? x[flat_index(place, x.shape)] : zero;
  });
}

struct Pads {
  enum class Mode { kConstant, kReflect, kReplicate };

  size_t axis;
  int64_t before, after;
  Mode mode;
};

// Walks from the edge inwards, one element for each that `index` lies outside.
inline int64_t reflected(int64_t index, int64_t extent) {
  if (index < 0) return -index;
  return index < extent ? index : extent - 1 - (index - (extent - 1));
}

template <typename N>
Array<N> pad(const Array<N>& x, const Pads& pads, N value) {
  Shape shape = x.shape;
  shape[pads.axis] += pads.before + pads.after;
  return filled_by_place<N>(std::move(shape), [&](Shape place) {
    const int64_t extent = x.shape[pads.axis], index = place[pads.axis] - pads.before;
    const bool is_inside = index >= 0 && index < extent;
    if (!is_inside && pads.mode == Pads::Mode::kConstant) return value;
    place[pads.axis] = pads.mode == Pads::Mode::kReflect
                           ? reflected(index, extent)
                           : std::max<int64_t>(0, std::min(index, extent - 1));
    return x[flat_index(place, x.shape)];
  });
}

template <typename N>
Array<N> one_hot(const Array<int64_t>& indices, int64_t class_count) {
  Shape shape = indices.shape;
  shape.push_back(class_count);
  return filled_by_place<N>(std::move(shape), [&](Shape place) {
    const int64_t named = place.back();
    place.pop_back();
    return N(indices[flat_index(place, indices.shape)] == named ? 1 : 0);
  });
}

template <typename N>
Array<N> masked_fill(Array<N> x, const Array<int64_t>& mask, N value) {
  for (int64_t i = 0; i < x.size(); ++i) {
    if (mask[i] != 0) x[i] = value;
  }
  return x;
}

template <typename N>
Array<N> tile(const Array<N>& x, int64_t count, size_t axis) {
  Shape shape = x.shape;
  shape[axis] *= count;
  return filled_by_place<N>(std::move(shape), [&](Shape place) {
    place[axis] = wrapped(place[axis], x.shape[axis]);
    return x[flat_index(place, x.shape)];
  });
}

}  // namespace bp::conformance::reference
