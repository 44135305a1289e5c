// Products of a matrix by a vector in loops of this project. They read the matrix once, in its own
// layout, and are as fast as the memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/gemm.hpp"

namespace bp::kernels {

// Returns whether the result has one column or one row, and the matrix has dense rows or dense
// columns that are long enough for vectors.
bool is_gemv(const Gemm& gemm);

// These functions do what gemm_workspace_size_bytes() and run_gemm() do, if is_gemv() is true. The
// workspace is enough for any number of threads.
uint64_t gemv_workspace_size_bytes(const Gemm& gemm);
void run_gemv(const Gemm& gemm, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
