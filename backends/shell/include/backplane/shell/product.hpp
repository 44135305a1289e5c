// Batched matrix products, for matmul and linear: y = activation(a b + bias), as kernels on
// addresses read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/ops.h"

namespace bp {

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
  // Gets a b + bias. Where there is none, it lies as y and has no address.
  ProductOperand preactivation;
  bool has_preactivation = false;
  std::byte* bias = nullptr;  // (cols), of the dtype of y, or NULL.
  int64_t bias_stride = 0;
  bool has_bias = false;  // Also where addresses are not known yet.
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;

  // The products of the batch; 0 if an axis has no element.
  int64_t batch_count() const;
  bool is_empty() const { return batch_count() * y.rows * y.cols == 0; }
};

// What the products take, as rows of (a, b, y): each narrow float with itself and with f32.
// clang-format off: a row is a combination.
inline constexpr bp_dtype kProductDtypes[] = {
    BP_F32,  BP_F32,  BP_F32, BP_F64,  BP_F64, BP_F64,  BP_F16,  BP_F16,  BP_F16,  BP_F16,
    BP_F16,  BP_F32,  BP_F16, BP_F32,  BP_F16, BP_F16,  BP_F32,  BP_F32,  BP_F32,  BP_F16,
    BP_F16,  BP_F32,  BP_F16, BP_F32,  BP_F32, BP_F32,  BP_F16,  BP_BF16, BP_BF16, BP_BF16,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F32, BP_BF16, BP_BF16, BP_F32,  BP_F32,  BP_F32,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F32, BP_F32,  BP_F32,  BP_BF16,
};
// clang-format on

// Where the first element of a tensor lies.
using AddressOf = std::byte* (*)(const bp_tensor& tensor);

// What the ops compute.
Product product_of(const bp_matmul_args& args, AddressOf address_of);
Product product_of(const bp_linear_args& args, AddressOf address_of);

// The same products in as few axes of the batch as the strides allow: batches that share b are more
// rows of one product, and neighbouring axes that lie as one do in every operand are one.
Product folded(Product product);

}  // namespace bp
