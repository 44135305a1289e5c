// Copies elements between layouts of one shape, and keeps their bits.
#pragma once

#include <cstdint>

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// Runs a loop over (to, from), on elements of 1, 2, 4 or 8 bytes. For a fill, the scalar of the
// loop is the element.
void run_copy(const Loop& loop, int64_t element_size_bytes, int threads);

}  // namespace bp::kernels
