// A call of an op in words: its arguments, one element, and the inputs of one result.
#pragma once

#include <cstdint>
#include <string>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

// Returns a number as messages write it, with all digits of the dtype.
std::string element_text(bp_dtype dtype, DoubleDouble value);

// Returns the bits of an element: "0x7fc00000".
std::string bits_text(bp_dtype dtype, uint64_t bits);
std::string bits_of(bp_dtype dtype, DoubleDouble value);

// Returns the coordinates of an element: "[3, 0]".
std::string place_text(int64_t index, const Shape& shape);

// Returns the call with its attributes, which have the names of the spec:
// "gather(x f32 [11, 5], indices i64 [7, 5], axis = 0, bounds = clamp) -> y f32 [7, 5]".
std::string call_text(const OpCase& op_case);

// Returns the numbers from which element `index` of output number `output` is computed:
// "a[5, 0] = 1, a[5, 1] = -3; b[0, 2] = 4". The oracle says which these are: a result depends on a
// number if another number changes the exact result. A long list is cut, and says so. Returns "" if
// the oracle is too slow to be asked.
std::string inputs_text(const OpCase& op_case, const CallData& data, const Numerics& numerics,
                        size_t output, int64_t index);

}  // namespace bp::conformance
