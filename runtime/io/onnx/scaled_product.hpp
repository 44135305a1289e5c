// Products with what DequantizeLinear made, of which the codes are multiplied.
#pragma once

#include "runtime/io/onnx/call.hpp"

namespace bp::onnx {

// Returns the matrix product of `a` and `b`, or of `a` and the transposed `b`, by the op
// matmul_scaled. The result is empty if the factors are not of that kind, or if the device has no
// kernel of its own for the call: then the elements have to be multiplied.
Tensor scaled_product(const Value& a, const Value& b, bool is_b_transposed, Device device);

}  // namespace bp::onnx
