// A fake cuDNN for tests. It computes convolutions, their gradients and attention on the host from
// the graphs that it is given. It refuses extents that do not fit each other, as the library does.
#pragma once

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// Returns the table of its functions. Work goes to the streams of the fake CUDA.
Cudnn cudnn();

// Returns a table that is wrong on purpose: it turns the filter around, as the convolution of
// mathematics does, but the op is a cross-correlation, and its sums of softmax leave out the last
// key. A test that passes with this table checks
// nothing.
Cudnn broken_cudnn();

}  // namespace bp::cuda::fake
