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
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/product.hpp"

namespace bp::cuda {

// What the ops compute, in as few axes of the batch as the strides allow.
inline Product product_of(const bp_matmul_args& args) {
  return folded(bp::product_of(args, data<std::byte>));
}
inline Product product_of(const bp_linear_args& args) {
  return folded(bp::product_of(args, data<std::byte>));
}

// What cuBLASLt takes, as rows of (a, b, y).
// clang-format off: a row is a combination.
constexpr bp_dtype kWideLibraryDtypes[] = {BP_F32, BP_F32, BP_F32, BP_F64, BP_F64, BP_F64};
constexpr bp_dtype kNarrowLibraryDtypes[] = {BP_F16,  BP_F16,  BP_F16,  BP_F16,  BP_F16,  BP_F32,
                                             BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_F32};
// clang-format on
constexpr bp_dtype kTf32Dtypes[] = {BP_F32, BP_F32, BP_F32};

// A row of the table for an op whose free dtypes are those of two factors and a result.
template <size_t kCount>
constexpr bp_kernel product_row(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount],
                                int32_t priority, const bp_numerics* numerics = nullptr) {
  bp_kernel row = kernel_row(name, op, {dtypes, 3});
  row.priority = priority;
  row.numerics = numerics;
  return row;
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
