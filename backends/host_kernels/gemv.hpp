// Products of a matrix by a vector in loops of our own: they read the matrix once, as it lies, and
// are as fast as memory gives it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/gemm.hpp"

namespace bp::kernels {

// Whether the result has one column, or one row, and the matrix has dense rows or dense columns
// that are long enough for vectors.
bool is_gemv(const Gemm& gemm);

// As gemm_workspace_size_bytes() and run_gemm(), where is_gemv(); with any number of threads.
uint64_t gemv_workspace_size_bytes(const Gemm& gemm);
void run_gemv(const Gemm& gemm, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
