// The f64 matrix product, for oneDNN has none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::kernels {

// A matrix with any strides, in elements; they may be zero or negative.
template <typename T>
struct Matrix {
  T* data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int64_t col_stride;

  Matrix transposed() const { return {data, cols, rows, col_stride, row_stride}; }
};

// The workspace of gemm() for y with `cols` columns and `depth` products in each element.
uint64_t gemm_workspace_size_bytes(int64_t cols, int64_t depth, int thread_count);

// y = a b, or y += a b. y overlaps neither a nor b. The order of the sums depends on the extents
// alone: equal input gives equal bits, also with another number of threads.
void gemm(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& y,
          bool accumulate, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
