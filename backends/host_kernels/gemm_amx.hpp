// Matrix products of bf16 by AMX, in loops of this project. A grouped product has rows that are
// known only when the work runs, so that it cannot have a primitive of oneDNN for each number of
// rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/gemm.hpp"

namespace bp::kernels {

// Threads share a product by panels of so many columns.
constexpr int64_t kAmxColumns = 32;

// The sums of so many rows of a panel stay in the first-level cache.
constexpr int64_t kAmxSumRows = 64;

// Returns whether the product of `gemm` is one for run_amx_panel(), for any number of rows.
bool takes_amx(const Gemm& gemm);

// Returns the memory that one thread needs for panels of a product of this depth.
uint64_t amx_panel_size_bytes(int64_t depth);

// Computes the columns [panel * kAmxColumns, (panel + 1) * kAmxColumns) of y = a b. Sums are f32
// and in an order that the depth alone decides. They are rounded once.
void run_amx_panel(const Gemm& gemm, int64_t panel, std::byte* memory);

}  // namespace bp::kernels
