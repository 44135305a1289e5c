// Loops whose rows have only a few elements, such as a tensor (n, 3) to which 3 numbers are added.
#pragma once

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

// Returns whether the rows of a loop are short, and those of its result lie behind each other.
bool has_short_rows(const Loop& loop);

// Does what run_rows() does for a loop that has_short_rows(). It gives many rows at a time to
// `row`, as one row. Operands that do not lie behind each other are copied.
void run_short_rows(const Loop& loop, RowFunction* row, int threads, int64_t grain,
                    const RowOptions& options);

}  // namespace bp::kernels
