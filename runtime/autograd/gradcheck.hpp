// Compares gradients with central differences. This test of a gradient needs no formula.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "backplane/runtime/tensor.hpp"

namespace bp {

using TensorFunction = std::function<Tensor(std::span<const Tensor>)>;

struct GradcheckOptions {
  double step = 1e-6;
  // The two may differ by `absolute` plus `relative` times the numeric gradient.
  double absolute = 1e-7;
  double relative = 1e-6;
};

// Compares the gradients of `function` at `inputs` with central differences. The inputs are f64
// leaves that require a gradient. Returns "" if the two agree, else where they differ. Fixed
// numbers weight the outputs, so that errors that cancel in a plain sum are seen. Blocks.
std::string gradcheck(const TensorFunction& function, std::span<const Tensor> inputs,
                      const GradcheckOptions& options = {});

// Compares the gradients of the gradients, as functions of the inputs and of the gradient that goes
// in.
std::string gradgradcheck(const TensorFunction& function, std::span<const Tensor> inputs,
                          const GradcheckOptions& options = {});

}  // namespace bp
