// Products of f32 whose weight lies in the blocks of a file (backplane/block_formats.def).
//
// For few rows of x each block is decoded where it is used, so that the product needs no workspace
// and reads as many bytes as the file has. For more rows some columns of the weight are decoded at
// once, into a panel in the workspace, and multiplied by run_gemm(); threads take panels in turn.
// block_dot.cpp does both in vectors for all formats but q2_k and q3_k. A linear of q4_0 by 4096 by
// 4096 takes 0.6 ms for one row, and 8 ms for 16 rows on one thread, 4 ms on two (a Zen 5).
#pragma once

#include "backends/host_kernels/product.hpp"
#include "backplane/shell/block_layout.hpp"

namespace bp::cpu {

// Both functions take a product that is_one_dense_product() took, where the blocks of the transpose
// of b, (columns, depth), begin at the address of b. multiply_blocks() computes y = a b + bias with
// a workspace of block_product_workspace_bytes().
uint64_t block_product_workspace_bytes(const Product& product, const BlockFormat& format,
                                       int thread_count);
void multiply_blocks(const Product& product, const BlockFormat& format, std::byte* workspace,
                     int thread_count);

}  // namespace bp::cpu
