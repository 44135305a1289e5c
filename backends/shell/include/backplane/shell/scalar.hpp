// Values of the call itself: operands that are inline, and arguments of kind scalar|tensor.
#pragma once

#include <cstdint>

#include "backplane/tensor.h"

namespace bp {

// The value of `scalar`, converted to `dtype` as a tensor of it would have been, in the low bytes
// of the result. Floats round to the nearest, ties to even, once. Integers wrap; to them a float is
// cut towards zero, a NaN is 0, and what no integer of 64 bits holds is the nearest that is one.
// Throws StatusError for a dtype that a scalar cannot have.
uint64_t convert_scalar(const bp_scalar& scalar, bp_dtype dtype);

}  // namespace bp
