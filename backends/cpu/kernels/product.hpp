// Batched matrix products, for matmul and linear: y = activation(a b + bias).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/strided.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

class Program;

// One operand: (rows, cols) for each index of the batch.
struct ProductOperand {
  std::byte* address = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 0;
  int64_t batch_strides[BP_MAX_RANK] = {};
};

// y (rows, cols) = a (rows, depth) by b (depth, cols) for each index of the batch.
struct Product {
  bp_dtype dtype = 0;  // Of all operands: BP_F32 or BP_F64.
  uint32_t batch_ndim = 0;
  int64_t batch[BP_MAX_RANK] = {};
  ProductOperand a, b, y;
  std::byte* bias = nullptr;  // (cols), or NULL.
  int64_t bias_stride = 0;
  bool has_bias = false;  // Also where addresses are not known yet.
  bool has_relu = false;
};

// The operand whose matrices are the last two axes of `tensor`.
ProductOperand operand_of(const bp_tensor& tensor);

uint64_t product_workspace_size_bytes(const Product& product, const Env& env);
bp_status submit_product(const Product& product, const Launch& launch);

}  // namespace bp::kernels
