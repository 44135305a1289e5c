// Batched matrix products, for matmul and linear: y = activation(a b + bias).
//
// Two kernels run them. cuBLASLt (product_library.cpp) takes matrices with dense rows or columns,
// of one dtype or narrow ones into f32; the tiles of product_tiles.cu take every stride, every
// mixture of dtypes and a depth of 0, some times slower.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/cublaslt.hpp"
#include "backends/cuda/kernel_env.hpp"
#include "backplane/ops.h"

namespace bp::cuda {

// One operand: (rows, cols) for each index of the batch. Strides are in elements.
struct ProductOperand {
  std::byte* address = nullptr;
  bp_dtype dtype = 0;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 0;
  int64_t batch_strides[BP_MAX_RANK] = {};
};

// y (rows, cols) = a (rows, depth) by b (depth, cols) for each index of the batch. All are f64, or
// each is one of the other floats.
struct Product {
  uint32_t batch_ndim = 0;
  int64_t batch[BP_MAX_RANK] = {};
  ProductOperand a, b, y;
  ProductOperand preactivation;  // Gets a b + bias. Where there is none, it lies as y.
  bool has_preactivation = false;
  std::byte* bias = nullptr;  // (cols), of the dtype of y.
  int64_t bias_stride = 0;
  bool has_bias = false;  // Also where addresses are not known yet.
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;

  int64_t batch_count() const;
  bool is_empty() const { return batch_count() * y.rows * y.cols == 0; }
};

// What the ops compute: batches that share b are folded into rows, and axes of the batch that lie
// behind each other in every operand are one.
Product product_of(const bp_matmul_args& args);
Product product_of(const bp_linear_args& args);

// What the products take, as rows of (a, b, y): each narrow float with itself and with f32.
// clang-format off: a row is a combination.
constexpr bp_dtype kProductDtypes[] = {
    BP_F32,  BP_F32,  BP_F32, BP_F64,  BP_F64, BP_F64,  BP_F16,  BP_F16,  BP_F16,  BP_F16,
    BP_F16,  BP_F32,  BP_F16, BP_F32,  BP_F16, BP_F16,  BP_F32,  BP_F32,  BP_F32,  BP_F16,
    BP_F16,  BP_F32,  BP_F16, BP_F32,  BP_F32, BP_F32,  BP_F16,  BP_BF16, BP_BF16, BP_BF16,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F32, BP_BF16, BP_BF16, BP_F32,  BP_F32,  BP_F32,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F32, BP_F32,  BP_F32,  BP_BF16};
// Those of cuBLASLt.
constexpr bp_dtype kWideLibraryDtypes[] = {BP_F32, BP_F32, BP_F32, BP_F64, BP_F64, BP_F64};
constexpr bp_dtype kNarrowLibraryDtypes[] = {BP_F16,  BP_F16,  BP_F16,  BP_F16,  BP_F16,  BP_F32,
                                             BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_F32};
// clang-format on
constexpr bp_dtype kTf32Dtypes[] = {BP_F32, BP_F32, BP_F32};

// A row of the table for an op whose free dtypes are those of two factors and a result.
template <size_t kCount>
constexpr bp_kernel product_row(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount],
                                int32_t priority, const bp_numerics* numerics = nullptr) {
  return {
      .name = name,
      .op = op,
      .priority = priority,
      .flags = BP_KERNEL_DETERMINISTIC,
      .numerics = numerics,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount / 3,
      .dtype_count = 3,
      .layouts = BP_LAYOUT_ANY,
  };
}

// ---- cuBLASLt
// ------------------------------------------------------------------------------------

// How a product looks to cuBLASLt; the axes of the batch before the last are a loop.
struct LibraryProduct {
  LtProblem problem;
  bool is_by_columns = false;  // y has dense columns: a b is computed, else b^T a^T.
  uint32_t loop_ndim = 0;      // Axes of the batch that are looped over.
};

// NULL, or why cuBLASLt does not take the product as it lies.
bp_reason refuse_library_product(const Product& product);
// Of a product that is not refused.
LibraryProduct library_product(const Product& product, bool allows_tf32, bool is_aligned);
// Whether all matrices of all batches begin at multiples of 16 bytes.
bool is_aligned(const Product& product);

// ---- Tiles
// ---------------------------------------------------------------------------------------

bp_status launch_product_tiles(const Product& product, Launch& launch);
// Stores in y what becomes of the sums, which lie in the preactivation, or else in y.
bp_status launch_activation(const Product& product, Launch& launch);
// Copies the bias to dense memory.
bp_status launch_bias_copy(const Product& product, std::byte* to, Launch& launch);

}  // namespace bp::cuda
