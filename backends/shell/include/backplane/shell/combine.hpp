// Reductions across ranks, which reduce the same element of several tensors to one element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backplane/collective.h"

namespace bp::kernels {

// What one rank gives to a reduction.
struct Contribution {
  const std::byte* elements;
  double scale;  // Used by BP_REDUCTION_SCALED_SUM alone.
};

// Returns whether combine() takes this reduction with this dtype. Averages and scaled sums need
// floats.
bool can_combine(bp_reduction reduction, bp_dtype dtype);

// Reduces `count` elements of each contribution into `result`, which may be the memory of a
// contribution. It combines them in the order of the contributions, so that equal input gives equal
// bits. 16-bit floats are summed in f32 and rounded once. Integers wrap. In min and max a NaN gives
// a NaN.
void combine(bp_reduction reduction, bp_dtype dtype, std::span<const Contribution> contributions,
             std::byte* result, int64_t count);

// Divides `count` elements by `divisor`, which makes an average of a sum. The dtype is a float.
void divide(bp_dtype dtype, std::byte* elements, int64_t count, double divisor);

}  // namespace bp::kernels
