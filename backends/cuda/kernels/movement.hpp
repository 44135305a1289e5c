// Moving and converting elements, for the kernels that need it besides copy itself.
#pragma once

#include "backends/cuda/kernels/kernels.hpp"

namespace bp::cuda {

// Moves the elements of operand 1 of `loop`, of `size_bytes` each, to operand 0.
bp_status submit_copy(Launch& launch, const Loop& loop, int64_t size_bytes);

// The same between two dtypes, as copy does it.
bp_status submit_cast(Launch& launch, const Loop& loop, bp_dtype from, bp_dtype to);

}  // namespace bp::cuda
