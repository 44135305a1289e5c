// The elements of a tensor in host memory, and where two of them differ.
#pragma once

#include <string>

#include "backplane/tensor.h"

namespace bp::layers {

// `bytes` are those of the tensor's buffer from byte `begin` on.
struct Elements {
  const bp_tensor* tensor;
  const unsigned char* bytes;
  uint64_t begin;
};

// "element [1, 2]: 0.5 and 0.25, 12 of 24 elements differ"; "" if all are alike. Floats are alike
// if |a - b| <= bound * max(1, |a|, |b|), or both are NaN; with a bound below 0, and for everything
// else, if their bits are. The tensors have one shape, dtype and strides.
std::string first_difference(const Elements& a, const Elements& b, double bound);

}  // namespace bp::layers
