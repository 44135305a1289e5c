// Random ops take their numbers from the generator of the device, unless they are given another
// Generator.
//
// The same seed gives the same numbers on every device. Each call takes the part of the sequence
// that it uses, so the order of calls matters. A call that throws uses nothing, unless another
// thread took a part behind it meanwhile.
#pragma once

#include "backplane/runtime/tensor.hpp"

namespace bp {

// Returns numbers that are uniform in [0, 1).
Tensor uniform(IntList shape, bp_dtype dtype, Device device = current_device(),
               Generator* generator = nullptr);

// Keeps each element with probability 1 - p, scaled by 1 / (1 - p); the others become 0.
Tensor dropout(const Tensor& x, double p, Generator* generator = nullptr);

}  // namespace bp
