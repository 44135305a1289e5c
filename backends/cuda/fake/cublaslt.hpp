// A fake cuBLASLt for tests. It computes products on the host from the descriptions that it is
// given, so that a wrong stride or transposition gives wrong numbers. It refuses combinations that
// the manual of the library does not list, and calls that break a promise to its heuristics.
#pragma once

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// Returns the table of its functions. Work goes to the streams of the fake CUDA.
CublasLt cublaslt();

// Returns a table that computes wrong products on purpose: it steps through its first factor by the
// smaller extent and not by the leading dimension. A test that passes with this table checks
// nothing.
CublasLt broken_cublaslt();

}  // namespace bp::cuda::fake
