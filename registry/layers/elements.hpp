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

// How far apart two floats may be: |a - b| <= relative * max(|a|, |b|, scale, |sums|). Below or at
// 0 their bits are compared, but one NaN is as good as another. What is no float is compared so.
struct Tolerance {
  double relative = 0;
  double scale = 0;
  const unsigned char* sums = nullptr;  // One for each element, in bytes like those compared.
};

// "element [1, 2]: 0.5 and 0.25 are 0.25 apart, allowed are 1e-06; 12 of 24 elements differ"; "" if
// all are alike. The tensors have one shape, dtype and strides.
std::string first_difference(const Elements& a, const Elements& b, const Tolerance& tolerance);

// The largest finite magnitude of all elements; 0 if they are no floats.
double largest_magnitude(const Elements& a);

// Takes the signs from the elements; false if they are no floats.
bool make_absolute(const bp_tensor& tensor, unsigned char* bytes, uint64_t begin);

}  // namespace bp::layers
