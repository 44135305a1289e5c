// A case is a function whose gradients are compared with central differences. The tests and
// bp-gradcheck run the cases. Every op that the spec gives a gradient must have one.
#pragma once

#include <string>
#include <vector>

#include "runtime/autograd/gradcheck.hpp"

namespace bp {

struct GradientCase {
  const char* name;  // The op; a variant has its name after ", ".
  std::vector<std::vector<int64_t>> shapes;
  TensorFunction function;
  bool is_once = false;  // Its gradient refuses to be differentiated again.

  std::string op() const;
  // Makes leaves of these shapes in f64, on the current device.
  std::vector<Tensor> leaves() const;
};

// Return the cases of one family of ops; gradient_cases() returns all.
std::vector<GradientCase> elementwise_gradient_cases();
std::vector<GradientCase> function_gradient_cases();
std::vector<GradientCase> movement_gradient_cases();
std::vector<GradientCase> indexing_gradient_cases();
std::vector<GradientCase> matrix_gradient_cases();
std::vector<GradientCase> window_gradient_cases();
std::vector<GradientCase> normalization_gradient_cases();
std::vector<GradientCase> channel_norm_gradient_cases();
std::vector<GradientCase> loss_gradient_cases();
std::vector<GradientCase> attention_gradient_cases();
std::vector<GradientCase> moe_gradient_cases();
std::vector<GradientCase> recurrent_gradient_cases();
std::vector<GradientCase> spectral_gradient_cases();
const std::vector<GradientCase>& gradient_cases();

// Returns the ops that have a gradient in the spec and no case.
std::vector<std::string> ops_without_gradient_case();

// ---- For the cases ----------------------------------------------------------------------------

// Returns numbers in [0.3, 1.7) that all differ, so that no element is at a kink or a tie.
Tensor gradient_sample(IntList shape, size_t salt);

// Returns one number that depends on every element of every tensor, with a different weight for
// each.
Tensor gradient_mix(const std::vector<Tensor>& tensors);

}  // namespace bp
