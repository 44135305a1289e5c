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

uint64_t product_workspace_size_bytes(const Product& product, const Env& env);
bp_status submit_product(const Product& product, const Launch& launch);

}  // namespace bp::kernels
