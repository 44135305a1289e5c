#include "runtime/autograd/gradcheck.hpp"

#include <cmath>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp {
namespace {

// Returns a tensor like `like` with numbers in [0.5, 1.5) that differ from element to element.
Tensor weights_like(const Tensor& like) {
  std::vector<double> weights(static_cast<size_t>(like.numel()));
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = 0.5 + std::fmod(0.6180339887498949 * static_cast<double>(i + 1), 1.0);
  }
  return from_host<double>(weights, like.shape(), like.device());
}

double value_at(const TensorFunction& function, std::span<const Tensor> inputs) {
  const NoGradGuard guard;
  const Tensor y = function(inputs);
  return sum(y * weights_like(y)).item<double>();
}

}  // namespace

std::string gradcheck(const TensorFunction& function, std::span<const Tensor> inputs,
                      const GradcheckOptions& options) {
  const Tensor y = function(inputs);
  const Tensor weights = weights_like(y);
  const std::vector<Tensor> gradients =
      grad({&y, 1}, inputs, {&weights, 1}, {.allow_unused = true});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double> values = inputs[i].to_vector<double>();
    const std::vector<double> analytic =
        gradients[i] ? gradients[i].to_vector<double>() : std::vector<double>(values.size(), 0.0);
    if (gradients[i] && !(gradients[i].shape() == inputs[i].shape())) {
      return "input " + std::to_string(i) + ": the gradient has the shape " +
             to_string(gradients[i].shape()) + ", the input " + to_string(inputs[i].shape());
    }
    for (size_t k = 0; k < values.size(); ++k) {
      std::vector<Tensor> moved(inputs.begin(), inputs.end());
      std::vector<double> shifted = values;
      const auto at = [&](double value) {
        shifted[k] = value;
        moved[i] = from_host<double>(shifted, inputs[i].shape(), inputs[i].device());
        return value_at(function, moved);
      };
      const double numeric =
          (at(values[k] + options.step) - at(values[k] - options.step)) / (2 * options.step);
      const double bound = options.absolute + options.relative * std::fabs(numeric);
      if (!(std::fabs(numeric - analytic[k]) <= bound)) {
        return "input " + std::to_string(i) + ", element " + std::to_string(k) +
               ": the gradient is " + short_text(analytic[k], 9) + ", central differences give " +
               short_text(numeric, 9);
      }
    }
  }
  return "";
}

std::string gradgradcheck(const TensorFunction& function, std::span<const Tensor> inputs,
                          const GradcheckOptions& options) {
  // The last input is the gradient that goes in. The gradients that come out depend on it in every
  // case.
  std::vector<Tensor> all(inputs.begin(), inputs.end());
  {
    const NoGradGuard guard;
    all.push_back(weights_like(function(inputs)));
  }
  all.back().set_requires_grad();
  const TensorFunction gradient = [&](std::span<const Tensor> leaves) {
    // The differences are computed with recording off, but the gradients need a graph of their own.
    const GradModeGuard guard(true);
    std::vector<Tensor> own;
    for (const Tensor& leaf : leaves) {
      own.push_back(leaf.requires_grad() ? leaf : leaf.detach().set_requires_grad());
    }
    const Tensor weights = own.back();
    own.pop_back();
    const Tensor y = function(own);
    const std::vector<Tensor> gradients =
        grad({&y, 1}, own, {&weights, 1}, {.create_graph = true, .allow_unused = true});
    Tensor total = zeros({}, BP_F64, y.device());
    for (const Tensor& item : gradients) {
      if (item) total = total + sum(item * weights_like(item));
    }
    return total;
  };
  return gradcheck(gradient, all, options);
}

}  // namespace bp
