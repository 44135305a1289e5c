// Turns inline scalars into bytes of a dtype.
#pragma once

#include "backplane/tensor.h"

namespace bp::core {

// Writes the value of `scalar`, converted to `dtype`, into `out` of 16 bytes, and returns its size.
// A packed element has the low bits of one byte, whose other bits are 0. Returns 0 if the dtype has
// no such element, or if the scalar is complex and the dtype is not.
uint32_t scalar_bytes(const bp_scalar& scalar, bp_dtype dtype, unsigned char* out);

// Returns whether `dtype` has the value that `scalar` has in f32. `dtype` is f16 or bf16.
bool holds_scalar(const bp_scalar& scalar, bp_dtype dtype);

}  // namespace bp::core
