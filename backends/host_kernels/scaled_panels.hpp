// Products of floats with a quantised weight for many rows of a, for matmul_scaled: some columns of
// b at a time become floats, in a panel in the workspace, and run_gemm() multiplies them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/scaled_product.hpp"

namespace bp::kernels {

// Returns why run_scaled_panels() does not take a product, or NULL.
const char* scaled_panels_refusal(const ScaledProduct& p);

// Computes y, with the sums of the terms in f32. Neither the shape of a nor that of y is empty.
uint64_t scaled_panels_workspace_size_bytes(const ScaledProduct& p, int thread_count);
void run_scaled_panels(const ScaledProduct& p, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
