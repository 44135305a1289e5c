// Values that a call contains: inline operands, and arguments of kind scalar|tensor.
#pragma once

#include <cstdint>

#include "backplane/tensor.h"

namespace bp {

// Returns the value of `scalar`, converted to `dtype` as the op cast converts an element, in the
// low bytes of the result. A conversion to a float rounds once, to the nearest, ties to even. A
// conversion to an integer wraps integers and cuts floats towards zero; a NaN becomes 0, and a
// float outside the range of 64 bits becomes the nearest integer in the range. Throws StatusError
// for a dtype that a scalar cannot have.
uint64_t convert_scalar(const bp_scalar& scalar, bp_dtype dtype);

}  // namespace bp
