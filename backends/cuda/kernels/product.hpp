// Batched matrix products, for matmul and linear: y = activation(a b + bias).
//
// There are two kernels. cuBLASLt (product_library.cpp) takes matrices with dense rows or columns,
// of one dtype or of narrow dtypes into f32. The tiles of product_tiles.cu take every stride, every
// mixture of dtypes and a depth of 0, and are a few times slower.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/cublaslt.hpp"
#include "backends/cuda/kernel_env.hpp"
#include "backplane/ops.h"
#include "backplane/shell/kernel_row.hpp"
#include "backplane/shell/product.hpp"

namespace bp::cuda {

// Return the products of the ops, with as few batch axes as the strides allow.
inline Product product_of(const bp_matmul_args& args) {
  return folded(bp::product_of(args, data<std::byte>));
}
inline Product product_of(const bp_linear_args& args) {
  return folded(bp::product_of(args, data<std::byte>));
}

// The dtypes that cuBLASLt takes, as rows of (a, b, y).
constexpr bp_dtype kWideLibraryDtypes[] = {BP_F32, BP_F32, BP_F32, BP_F64, BP_F64, BP_F64};
constexpr bp_dtype kNarrowLibraryDtypes[] = {BP_F16,  BP_F16,  BP_F16,  BP_F16,  BP_F16,  BP_F32,
                                             BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_F32};
constexpr bp_dtype kTf32Dtypes[] = {BP_F32, BP_F32, BP_F32};

// Returns a row of the table for an op whose free dtypes are those of two factors and a result.
template <size_t kCount>
constexpr bp_kernel product_row(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount],
                                int32_t priority, const bp_numerics* numerics = nullptr) {
  bp_kernel row = kernel_row(name, op, {dtypes, 3});
  row.priority = priority;
  row.numerics = numerics;
  return row;
}

// ---- cuBLASLt -----------------------------------------------------------------------------------

// A product as cuBLASLt takes it. The batch axes before the last one are a loop.
struct LibraryProduct {
  LtProblem problem;
  bool is_by_columns = false;  // If true, y has dense columns and a b is computed; else b^T a^T.
  uint32_t loop_ndim = 0;      // The number of batch axes in the loop.
};

// Returns NULL, or why cuBLASLt does not take the product with its strides.
bp_reason refuse_library_product(const Product& product);
// Describes a product that is not refused.
LibraryProduct library_product(const Product& product, bool allows_tf32, bool is_aligned);
// Returns whether all matrices of all batches begin at multiples of 16 bytes.
bool is_aligned(const Product& product);

// ---- Tiles --------------------------------------------------------------------------------------

bp_status launch_product_tiles(const Product& product, Launch& launch);
// Applies the activation to the sums and stores the result in y. The sums lie in the preactivation
// if there is one, else in y.
bp_status launch_activation(const Product& product, Launch& launch);
// Adds the bias to sums in f32, rounds them to the preactivation, if the call wants it, and their
// activation to y.
bp_status launch_rounding(const Product& product, const ProductOperand& sums, Launch& launch);
// Copies the bias to dense memory.
bp_status launch_bias_copy(const Product& product, std::byte* to, Launch& launch);

}  // namespace bp::cuda
