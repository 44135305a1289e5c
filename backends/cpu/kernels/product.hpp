// Batched matrix products, for matmul and linear: y = activation(a b + bias).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/gemm.hpp"
#include "backends/cpu/kernels/strided.hpp"
#include "backplane/ops.h"
#include "kernel_env.hpp"

namespace bp::kernels {

class Program;

// One operand: (rows, cols) for each index of the batch.
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
};

// What the products of all ops take: each narrow float with itself and with f32.
// clang-format off: a row is a combination.
constexpr bp_dtype kProductDtypes[] = {
    BP_F32,  BP_F32,  BP_F32, BP_F64,  BP_F64, BP_F64,  BP_F16,  BP_F16,  BP_F16,  BP_F16,
    BP_F16,  BP_F32,  BP_F16, BP_F32,  BP_F16, BP_F16,  BP_F32,  BP_F32,  BP_F32,  BP_F16,
    BP_F16,  BP_F32,  BP_F16, BP_F32,  BP_F32, BP_F32,  BP_F16,  BP_BF16, BP_BF16, BP_BF16,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F32, BP_BF16, BP_BF16, BP_F32,  BP_F32,  BP_F32,
    BP_BF16, BP_BF16, BP_F32, BP_BF16, BP_F32, BP_F32,  BP_F32,  BP_BF16,
};
// clang-format on

// What the ops compute.
Product product_of(const bp_matmul_args& args);
Product product_of(const bp_linear_args& args);

// The operand whose matrices are the last two axes of `tensor`.
ProductOperand operand_of(const bp_tensor& tensor);

// Folds batches into rows where b is the same for all. Whether what is left is one product of f32
// whose operands oneDNN takes as they lie, and writes as y lies.
bool is_one_dense_product(Product& p);

// Turns the sums in y into y = activation(sums), and stores them in preactivation where it is
// given: behind oneDNN, whose own relu turns NaN into 0.
void run_activation(const Product& p, int thread_count);

uint64_t product_workspace_size_bytes(const Product& product, const Env& env);
bp_status submit_product(const Product& product, const Launch& launch);

}  // namespace bp::kernels
