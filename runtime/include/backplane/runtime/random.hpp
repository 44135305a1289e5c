// Random ops that take their numbers from a Generator: that of the device unless another is given.
//
// The same seed gives the same numbers on every device. Each call takes the part of the sequence
// that it uses, so the order of calls matters.
#pragma once

#include "backplane/runtime/tensor.hpp"

namespace bp {

// Uniform in [0, 1).
Tensor uniform(IntList shape, bp_dtype dtype, Device device = current_device(),
               Generator* generator = nullptr);

// Keeps each element with probability 1 - p, scaled by 1 / (1 - p); the others become 0.
Tensor dropout(const Tensor& x, double p, Generator* generator = nullptr);

}  // namespace bp
