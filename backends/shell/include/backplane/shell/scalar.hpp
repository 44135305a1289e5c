// Values that a call contains: inline operands, and arguments of kind scalar|tensor.
#pragma once

#include <cstdint>

#include "backplane/tensor.h"

namespace bp {

// Returns the value of `scalar`, converted to `dtype` as the op cast converts an element, in the
// low bytes of the result. A conversion to a float rounds once, to the nearest, ties to even. A
// conversion to an integer wraps integers and cuts floats towards zero; a NaN becomes 0, and a
// float outside the range of 64 bits becomes the nearest integer in the range. Throws StatusError
// for a dtype that a scalar cannot have, and for a complex one. It does not read imaginary_bits,
// which are 0 in a scalar that is not complex (TENSOR-7).
uint64_t convert_scalar(const bp_scalar& scalar, bp_dtype dtype);

// Returns whether the operand of a call is a value in acc(x): an inline scalar, or a tensor as for
// BP_KERNEL_TAKES_ACC_OPERAND. A tensor beside an x of its own dtype is none, although acc(x) may
// be that dtype.
inline bool is_acc_operand(const bp_tensor* operand, const bp_tensor& x) {
  return operand == nullptr || operand->dtype != x.dtype;
}

// Returns the value of an inline operand in acc(x), as an op that computes takes it.
uint64_t convert_operand(const bp_scalar& scalar, bp_dtype x);

// Returns the same value in the dtype of x, as an op that only moves elements stores it.
uint64_t convert_moved_operand(const bp_scalar& scalar, bp_dtype x);

}  // namespace bp
