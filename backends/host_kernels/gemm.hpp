// Matrix products in loops of our own, for every dtype, stride and shape: y = activation(a b +
// bias). Sums are f64 for f64 and f32 for all others, and are rounded to the dtype of y once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backplane/ops.h"
#include "backplane/shell/shape.hpp"

namespace bp::kernels {

constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

// A matrix with any strides, in elements; they may be zero or negative. Without data it is absent,
// and so are its parts.
struct Matrix {
  std::byte* data = nullptr;
  bp_dtype dtype = 0;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 0;

  Matrix transposed() const { return {data, dtype, cols, rows, col_stride, row_stride}; }

  std::byte* at(int64_t row, int64_t col) const {
    if (data == nullptr) return nullptr;
    return data + (row * row_stride + col * col_stride) * dtype_size_bytes(dtype);
  }

  // At most `row_count` rows from `row` on, and at most `col_count` columns.
  Matrix part(int64_t row, int64_t row_count, int64_t col, int64_t col_count) const {
    return {
        at(row, col), dtype,     std::min(row_count, rows - row), std::min(col_count, cols - col),
        row_stride,   col_stride};
  }
};

struct Gemm {
  Matrix a, b, y;
  Matrix bias;               // Of the shape of y, for strides may be 0; or absent.
  bool accumulates = false;  // y += a b; y has the dtype of the sums.
  Matrix preactivation;      // Of the shape and dtype of y, gets a b + bias; or absent.
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;

  Gemm transposed() const {
    return {b.transposed(),    a.transposed(), y.transposed(),
            bias.transposed(), accumulates,    preactivation.transposed(),
            activation};
  }
};

// The workspace of run_gemm() for these dtypes and extents, with up to `thread_count` threads.
uint64_t gemm_workspace_size_bytes(const Gemm& gemm, int thread_count);

// y overlaps neither a nor b. The order of the sums depends on dtypes, extents and strides alone:
// equal input gives equal bits, also with another number of threads.
void run_gemm(const Gemm& gemm, std::byte* workspace, int thread_count);

// What run_gemm() does at its end, for sums of f32 that are in y already: preactivation = y, and
// y = activation(y).
void run_activation(const Matrix& y, const Matrix& preactivation, uint32_t activation,
                    int thread_count);

}  // namespace bp::kernels
