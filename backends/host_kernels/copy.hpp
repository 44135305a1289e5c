// Copies between layouts of one shape, of elements that keep their bits.
#pragma once

#include <cstdint>

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// Runs a loop over (to, from), on elements of 1, 2, 4 or 8 bytes. The scalar of the loop is one
// element, for a fill.
void run_copy(const Loop& loop, int64_t element_size_bytes, int threads);

}  // namespace bp::kernels
