// What the quantised operators share: numbers of a dtype, and scales that lie along an axis.
#pragma once

#include "runtime/io/onnx/composed.hpp"

namespace bp::onnx {

// Returns input `i` minus its zero point, input `zero` (0 if it is not given), in `dtype`. If the
// zero point has one element for each of an axis, that axis is `axis`.
Tensor centred(const Call& call, size_t i, size_t zero, int64_t axis, bp_dtype dtype);

// Rounds `x` to the nearest integer, ties to even, adds `zero`, and saturates in `dtype`.
Tensor saturated(const Tensor& x, const Tensor& zero, bp_dtype dtype);

}  // namespace bp::onnx
