// Reads the elements of a tensor in host memory, and finds where two tensors differ.
#pragma once

#include <string>

#include "backplane/tensor.h"

namespace bp::layers {

// `bytes` are the bytes of the tensor's buffer from byte `begin` on.
struct Elements {
  const bp_tensor* tensor;
  const unsigned char* bytes;
  uint64_t begin;
};

// Says how far apart two floats may be: |a - b| <= relative * max(|a|, |b|, scale, |sums|). If
// `relative` is at most 0, the bits are compared, but one NaN is as good as another. Elements that
// are no floats are always compared by their bits.
struct Tolerance {
  double relative = 0;
  double scale = 0;
  const unsigned char* sums = nullptr;  // One for each element, laid out as the compared bytes.
};

// Returns text like "element [1, 2]: 0.5 and 0.25 are 0.25 apart, allowed are 1e-06; 12 of 24
// elements differ", or "" if all are alike. The tensors have one shape, dtype and strides.
std::string first_difference(const Elements& a, const Elements& b, const Tolerance& tolerance);

// Returns the largest finite magnitude of all elements, or 0 if they are no floats.
double largest_magnitude(const Elements& a);

// Removes the signs of the elements. Returns false if they are no floats.
bool make_absolute(const bp_tensor& tensor, unsigned char* bytes, uint64_t begin);

}  // namespace bp::layers
