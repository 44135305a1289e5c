// Matrix products y = activation(a b + bias) in loops of this project, for every dtype, stride and
// shape. Sums are f64 for f64, and f32 for all other dtypes. They are rounded to the dtype of y
// once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backplane/ops.h"
#include "backplane/shell/shape.hpp"

namespace bp::kernels {

constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

// The rows and columns of the largest tile of any target. Buffers hold a whole number of tiles.
constexpr int64_t kTileRowsLimit = 12;
constexpr int64_t kTileColsLimit = 32;

// A matrix with any strides, which count elements and may be zero or negative. A matrix without
// data is absent, and its parts are absent too.
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

  // Returns the part of at most `row_count` rows from `row` on and at most `col_count` columns from
  // `col` on.
  Matrix part(int64_t row, int64_t row_count, int64_t col, int64_t col_count) const {
    return {
        at(row, col), dtype,     std::min(row_count, rows - row), std::min(col_count, cols - col),
        row_stride,   col_stride};
  }
};

struct Gemm {
  Matrix a, b, y;
  Matrix bias;               // Absent, or with the shape of y; a stride may be 0.
  bool accumulates = false;  // Computes y += a b; y has the dtype of the sums.
  Matrix preactivation;      // Absent, or receives a b + bias; it is like y.
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;

  Gemm transposed() const {
    return {b.transposed(),    a.transposed(), y.transposed(),
            bias.transposed(), accumulates,    preactivation.transposed(),
            activation};
  }
};

// Returns whether a product of this depth spends most of its time on writing y.
constexpr bool is_shallow(int64_t depth) { return depth <= 32; }

// Returns the workspace that run_gemm() needs for these dtypes and extents, with up to
// `thread_count` threads.
uint64_t gemm_workspace_size_bytes(const Gemm& gemm, int thread_count);

// Computes y, which must overlap neither a nor b. The order of the sums depends on dtypes, extents
// and strides alone, so equal input gives equal bits with any number of threads.
void run_gemm(const Gemm& gemm, std::byte* workspace, int thread_count);

// Does the last step of run_gemm() for f32 sums that are already in y: preactivation = y, and y =
// activation(y).
void run_activation(const Matrix& y, const Matrix& preactivation, uint32_t activation,
                    int thread_count);

}  // namespace bp::kernels
