// A cuDNN for tests, which computes: a convolution or a gradient of one comes out of the graph that
// it was given. It refuses what does not fit together, as the library does.
#pragma once

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// The table. Work goes to the streams of the CUDA for tests.
Cudnn cudnn();

// The same, wrong on purpose: it turns the filter around, as a convolution by the book does, where
// ops are cross-correlations. Tests that pass with it judge nothing.
Cudnn broken_cudnn();

}  // namespace bp::cuda::fake
