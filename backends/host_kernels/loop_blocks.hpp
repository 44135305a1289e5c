// Walks a loop in blocks of a fixed number of elements, for sums whose order must depend on the
// loop alone, and not on the number of threads.
#pragma once

#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {

constexpr int64_t kLoopBlock = 16384;

// The context of the row functions: each adds what it finds to the sum of its block.
struct BlockSum {
  double* sum;
};

inline int64_t loop_block_count(int64_t count) { return (count + kLoopBlock - 1) / kLoopBlock; }

// Sets each of the loop_block_count() sums to 0, and calls `row` for the elements of its block. It
// uses a thread for every `grain` elements.
void sum_blocks(const Loop& loop, RowFunction* row, double* sums, int threads, int64_t grain);

}  // namespace bp::kernels
