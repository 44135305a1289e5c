// The lines of a tensor along one axis, for mutants and benign variants that compute on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "conformance/mutants/values.hpp"

namespace bp::mutants {

// One line of a tensor along an axis.
struct Line {
  const Values& x;
  size_t first, step, count;

  // Returns the number of an element of the line, in row-major order of the tensor.
  size_t at(size_t i) const { return first + i * step; }
  float operator[](size_t i) const { return static_cast<float>(x[at(i)]); }
};

// Calls function(Line) for each line of x along the axis. `shape` is the tensor that x was read
// from.
template <typename Function>
void for_each_line(const Values& x, const bp_tensor& shape, int32_t axis, Function function) {
  size_t step = 1;
  for (uint32_t i = static_cast<uint32_t>(axis) + 1; i < shape.ndim; ++i) {
    step *= static_cast<size_t>(shape.shape[i]);
  }
  const size_t count = shape.ndim == 0 ? 1 : static_cast<size_t>(shape.shape[axis]);
  for (size_t first = 0; first < x.size(); ++first) {
    if (first / step % count == 0) function(Line{x, first, step, count});
  }
}

}  // namespace bp::mutants
