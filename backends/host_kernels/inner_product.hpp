// Inner products of oneDNN: y = x weight^T + bias, with the weight in blocks.
//
// Errors: dnnl::error, and StatusError of BP_UNSUPPORTED where oneDNN has no blocked product.
#pragma once

#include <memory>

#include "backends/host_kernels/dnnl_program.hpp"
#include "backends/host_kernels/product.hpp"

namespace bp::kernels {

// The number of the weight among the memories of an inner product.
constexpr Program::Memory kInnerProductWeight = 1;

// The second factor of a product as a weight, which has (columns, depth): as it lies, and in
// whatever blocks oneDNN likes best.
dnnl::memory::desc weight_desc(const ProductOperand& b);
dnnl::memory::desc any_weight(const ProductOperand& b);

// Its externals are x, the weight, y and the bias. `p` is one that is_one_dense_product().
std::shared_ptr<const Program> make_inner_product(const Product& p,
                                                  const dnnl::memory::desc& weight,
                                                  int thread_count);

// Its externals are both memories.
std::shared_ptr<const Program> make_packer(const dnnl::memory::desc& from,
                                           const dnnl::memory::desc& to, int thread_count);

}  // namespace bp::kernels
