// Compares gradients with central differences: the test of a gradient that knows no formula.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "backplane/runtime/tensor.hpp"

namespace bp {

using TensorFunction = std::function<Tensor(std::span<const Tensor>)>;

struct GradcheckOptions {
  double step = 1e-6;
  double absolute = 1e-7;  // What the two may differ by,
  double relative = 1e-6;  // and this much of the numeric one.
};

// "" if the gradients of `function` at `inputs`, f64 leaves that require one, agree with central
// differences; else where they do not. The outputs are weighted by fixed numbers, so that errors
// that cancel in a plain sum are seen. Blocks.
std::string gradcheck(const TensorFunction& function, std::span<const Tensor> inputs,
                      const GradcheckOptions& options = {});

// The same for the gradients themselves, as functions of the inputs and of the gradient that goes
// in.
std::string gradgradcheck(const TensorFunction& function, std::span<const Tensor> inputs,
                          const GradcheckOptions& options = {});

}  // namespace bp
