// Batched matrix products, for matmul and linear: y = activation(a b + bias).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/ops.h"
#include "backplane/shell/product.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

class Program;

// Return the products that the ops compute.
inline Product product_of(const bp_matmul_args& args) {
  return bp::product_of(args, data<std::byte>);
}
inline Product product_of(const bp_linear_args& args) {
  return bp::product_of(args, data<std::byte>);
}

// Folds batches into rows if b is the same for all. Returns whether the result is one f32 product
// whose operands and y oneDNN takes with their own strides.
bool is_one_dense_product(Product& p);

// Turns the sums in y into y = activation(sums), and stores the sums in preactivation if it is
// given. It runs after oneDNN, whose own relu turns NaN into 0.
void run_activation(const Product& p, int thread_count);

// Returns whether a folded product consists of many small ones of f32 with dense rows of b and y.
bool are_small_products(const Product& p);
// Computes their sums; run_activation() does the rest.
void run_small_products(const Product& p, int thread_count);

// What a kernel declares about subnormals. vdpbf16ps of AVX512_BF16 takes them for 0.
enum class Subnormals { kept, flushed };

uint64_t product_workspace_size_bytes(const Product& product, const Env& env,
                                      Subnormals subnormals = Subnormals::kept);
bp_status submit_product(const Product& product, const Launch& launch,
                         Subnormals subnormals = Subnormals::kept);

// Returns whether submit_product() takes this product of i8 into i32, whose sums are exact.
bool library_has_bytes(const Product& product, const Env& env);

// ---- Kernels for products of bf16 by vdpbf16ps -------------------------------------------------

// The dtypes of (a, b, y) that they take, and what they declare.
inline constexpr bp_dtype kDotBf16Dtypes[] = {BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_BF16, BP_F32};
inline constexpr bp_numerics kDotBf16Numerics = {.struct_size = sizeof(bp_numerics),
                                                 .struct_type = BP_STRUCT_NUMERICS,
                                                 .flush = BP_FLUSH_INPUTS | BP_FLUSH_OUTPUTS};

// Returns why oneDNN has no such product on this processor, or NULL.
bp_reason dot_bf16_refusal();

// Returns a kernel's row with these numerics.
constexpr bp_kernel dot_bf16_row(bp_kernel row) {
  row.numerics = &kDotBf16Numerics;
  return row;
}

}  // namespace bp::kernels
