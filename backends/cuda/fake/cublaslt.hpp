// A cuBLASLt for tests, which computes: a product comes out of the descriptions that it was given,
// so that one wrong stride or transposition shows in the numbers. It refuses what the library's
// manual does not list, and what breaks a promise that was made to its heuristics.
#pragma once

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// The table. Work goes to the streams of the CUDA for tests.
CublasLt cublaslt();

// The same, wrong on purpose: it steps through its first factor by the shorter of its extents in
// place of its leading dimension. Tests that pass with it judge nothing.
CublasLt broken_cublaslt();

}  // namespace bp::cuda::fake
