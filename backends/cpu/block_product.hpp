// Products of f32 whose weight lies in the blocks of a file (backplane/block_formats.def).
//
// For few rows of x each block is decoded where it is used, so that the product needs no workspace
// and reads as many bytes as the file has; block_dot.cpp does it in vectors for four of the
// formats. For more rows some columns of the weight are decoded at once, into a panel in the
// workspace, and multiplied by run_gemm(). On one thread a linear of one row by 4096 by 4096 takes
// 1 to 2 ms in vectors and 3 to 16 ms without them. With panels 32 rows take 19 to 27 ms on a
// processor with AVX2; without panels 16 rows took 26 to 97 ms.
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
