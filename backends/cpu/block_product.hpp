// Products of f32 whose weight lies in the blocks of a file (backplane/block_formats.def).
//
// Each block is decoded once for sixteen rows of x, next to where it is used, so that a product
// needs no memory for decoded weights and reads as many bytes as the file has.
#pragma once

#include "backends/host_kernels/product.hpp"
#include "backplane/shell/block_layout.hpp"

namespace bp::cpu {

// Computes y = a b + bias for a product that is_one_dense_product() took. The blocks of the
// transpose of b, (columns, depth), begin at the address of b.
void multiply_blocks(const Product& product, const BlockFormat& format, int thread_count);

}  // namespace bp::cpu
