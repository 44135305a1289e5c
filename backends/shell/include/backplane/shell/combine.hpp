// Reductions across ranks: the same element of several tensors becomes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backplane/collective.h"

namespace bp::kernels {

// What one rank gives to a reduction.
struct Contribution {
  const std::byte* elements;
  double scale;  // For BP_REDUCTION_SCALED_SUM.
};

// Whether combine() takes them together. Averages and scaled sums are those of floats, bitwise
// reductions those of integers and of bool.
bool can_combine(bp_reduction reduction, bp_dtype dtype);

// Reduces `count` elements of each contribution into `result`, which may be one of them. The order
// is that of the contributions, so that equal input gives equal bits. 16-bit floats are summed in
// f32 and rounded once; integers wrap; a NaN stays one in min and max.
void combine(bp_reduction reduction, bp_dtype dtype, std::span<const Contribution> contributions,
             std::byte* result, int64_t count);

}  // namespace bp::kernels
