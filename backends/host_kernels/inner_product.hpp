// Inner products of oneDNN: y = x weight^T + bias, with the weight in blocks.
//
// The functions throw dnnl::error, and StatusError of BP_UNSUPPORTED if oneDNN has no blocked
// product.
#pragma once

#include <memory>

#include "backends/host_kernels/dnnl_program.hpp"
#include "backends/host_kernels/product.hpp"

namespace bp::kernels {

// The number of the weight among the memories of an inner product.
constexpr Program::Memory kInnerProductWeight = 1;

// Both functions describe the second factor of a product as a weight of shape (columns, depth):
// weight_desc() with its own strides, and the other one in the blocks that oneDNN prefers.
dnnl::memory::desc weight_desc(const ProductOperand& b);
dnnl::memory::desc any_weight(const ProductOperand& b);

// Makes an inner product whose externals are x, the weight, y and the bias. is_one_dense_product()
// must be true for `p`.
std::shared_ptr<const Program> make_inner_product(const Product& p,
                                                  const dnnl::memory::desc& weight,
                                                  int thread_count);

// Makes a program that packs; its externals are the two memories.
std::shared_ptr<const Program> make_packer(const dnnl::memory::desc& from,
                                           const dnnl::memory::desc& to, int thread_count);

}  // namespace bp::kernels
