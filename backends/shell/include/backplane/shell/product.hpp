// Batched matrix products of matmul and linear, y = activation(a b + bias), with the addresses that
// kernels read.
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

// y (rows, cols) = a (rows, depth) by b (depth, cols) for each index of the batch. Either all
// operands are f64, or each is one of the other floats.
struct Product {
  uint32_t batch_ndim = 0;
  int64_t batch[BP_MAX_RANK] = {};
  ProductOperand a, b, y;
  // Receives a b + bias. If the call does not want it, it has the strides of y and no address.
  ProductOperand preactivation;
  bool has_preactivation = false;
  std::byte* bias = nullptr;  // (cols), of the dtype of y, or NULL.
  int64_t bias_stride = 0;
  bool has_bias = false;  // It is set also if addresses are not known yet.
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;

  // Returns the number of products of the batch; 0 if an axis has no elements.
  int64_t batch_count() const;
  bool is_empty() const { return batch_count() * y.rows * y.cols == 0; }
};

// The combinations of dtypes that products take, as rows of (a, b, y): each narrow float with
// itself and with f32. Each row is a line, so clang-format is off.
// clang-format off
inline constexpr bp_dtype kProductDtypes[] = {
    BP_F32, BP_F32, BP_F32,
    BP_F64, BP_F64, BP_F64,
    BP_F16, BP_F16, BP_F16,
    BP_F16, BP_F16, BP_F32,
    BP_F16, BP_F32, BP_F16,
    BP_F16, BP_F32, BP_F32,
    BP_F32, BP_F16, BP_F16,
    BP_F32, BP_F16, BP_F32,
    BP_F32, BP_F32, BP_F16,
    BP_BF16, BP_BF16, BP_BF16,
    BP_BF16, BP_BF16, BP_F32,
    BP_BF16, BP_F32, BP_BF16,
    BP_BF16, BP_F32, BP_F32,
    BP_F32, BP_BF16, BP_BF16,
    BP_F32, BP_BF16, BP_F32,
    BP_F32, BP_F32, BP_BF16,
};

// The combinations for the gradient of a bias, which is summed over the gradient of the output, as
// rows of both.
inline constexpr bp_dtype kBiasDtypes[] = {
    BP_F32, BP_F32, BP_F64, BP_F64,  BP_F16,  BP_F16,  BP_F16, BP_F32,
    BP_F32, BP_F16, BP_BF16, BP_BF16, BP_BF16, BP_F32, BP_F32, BP_BF16,
};
// clang-format on

// Returns the address of the first element of a tensor.
using AddressOf = std::byte* (*)(const bp_tensor& tensor);

// Returns why a kernel that computes activation(a b + bias) does not take the call, or NULL.
template <typename Args>
bp_reason scaled_sum_reason(const Args& args) {
  const bool is_plain = args.addend == nullptr && (args.alpha == 0 || args.alpha == 1);
  return is_plain ? nullptr : "alpha and addend are not taken";
}

// Return the products that the ops compute.
Product product_of(const bp_matmul_args& args, AddressOf address_of);
Product product_of(const bp_linear_args& args, AddressOf address_of);

// Returns the same products with as few batch axes as the strides allow. Batches that share b
// become more rows of one product. Neighbouring axes become one axis if every operand's strides
// allow it.
Product folded(Product product);

}  // namespace bp
