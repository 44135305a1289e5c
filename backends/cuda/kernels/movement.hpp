// Moves and converts elements, for kernels other than copy.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// Moves the elements of operand 1 of `loop`, of `size_bytes` each, to operand 0. If operand 1 has
// no address, every element of operand 0 gets the bits of `scalar`.
bp_status submit_copy(Launch& launch, const Loop& loop, int64_t size_bytes, uint64_t scalar = 0);

// Converts the elements of operand 1 to operand 0, as the op copy does.
bp_status submit_cast(Launch& launch, const Loop& loop, bp_dtype from, bp_dtype to);

}  // namespace bp::cuda
