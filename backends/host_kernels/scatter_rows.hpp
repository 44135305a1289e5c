// How scatter and scatter_reduce walk lines and rows, for one dtype. A line is the elements along
// the axis that the indices name.
#pragma once

#include <atomic>
#include <cstdint>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// The axis that the indices name. The strides of y, indices and src are in bytes.
struct ScatterAxis {
  Bounds bounds;                // Of the axis of y.
  int64_t count = 0;            // The extent of the axis of indices.
  int64_t first = 0, last = 0;  // The elements [first, last) of y are set.
  int64_t y_stride = 0, index_stride = 0, src_stride = 0;
  int64_t line_bytes = 0;  // If not 0, a line of y is first copied from x, the fourth operand.
  WrongIndex* wrong = nullptr;
  std::atomic<bool>* is_long = nullptr;  // Set if an element is named by more than kShortSum.

  bool owns(int64_t index) const { return index >= first && index < last; }
};

// The functions of one op for one dtype. Sums are kept in y, or in the workspace if
// `sum_size_bytes` is not 0.
struct ScatterMethod {
  RowFunction *scatter, *begin, *end;
  int64_t sum_size_bytes;
};

// Terms of a sum in f32 at most: the counters have 8 bits, and one that is 0 again has met more.
constexpr int64_t kShortSum = 255;

// Returns the functions of scatter.
ScatterMethod find_replacement(bp_dtype dtype, bool is_i64);

// Returns the functions of sums. `is_long` says that the sums of f32 and narrower floats are kept
// in f64.
ScatterMethod find_addition(bp_dtype dtype, bool is_i64, bool is_long);

// Returns the function that counts how many indices name each element. Its operands are (counters,
// indices, src), and its context is a ScatterAxis. Scattering reports the indices that are out of
// range.
RowFunction* find_counter(bool is_i64);

}  // namespace bp::kernels
