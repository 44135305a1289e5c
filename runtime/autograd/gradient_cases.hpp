// A function for every op that has a gradient, to compare with central differences: what the test
// and bp-gradcheck run. An op that the spec gives a gradient must have a case here.
#pragma once

#include <string>
#include <vector>

#include "runtime/autograd/gradcheck.hpp"

namespace bp {

struct GradientCase {
  const char* name;  // The op, and behind ", " what of it.
  std::vector<std::vector<int64_t>> shapes;
  TensorFunction function;

  std::string op() const;
  std::vector<Tensor> leaves() const;  // Of these shapes in f64, on the current device.
};

// By families of ops; gradient_cases() has them all.
std::vector<GradientCase> elementwise_gradient_cases();
std::vector<GradientCase> movement_gradient_cases();
std::vector<GradientCase> matrix_gradient_cases();
std::vector<GradientCase> window_gradient_cases();
std::vector<GradientCase> normalization_gradient_cases();
std::vector<GradientCase> attention_gradient_cases();
const std::vector<GradientCase>& gradient_cases();

// The ops that the spec gives a gradient and that have no case.
std::vector<std::string> ops_without_gradient_case();

// ---- For the cases
// -------------------------------------------------------------------------------

// Numbers in [0.3, 1.7), no two alike, so that nothing is at a kink or a tie.
Tensor gradient_sample(IntList shape, size_t salt);

// A number that depends on every element of every tensor, on each in its own measure.
Tensor gradient_mix(const std::vector<Tensor>& tensors);

}  // namespace bp
