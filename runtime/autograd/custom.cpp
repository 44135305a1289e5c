// Results whose gradients a function of the caller computes.
#include "runtime/autograd/node.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp {
namespace detail {
namespace {

class CustomNode final : public Node {
 public:
  CustomNode(const char* name, std::span<const Tensor> inputs, GradFunction backward)
      : Node(name, nullptr, 0, nullptr, 0),
        inputs_(inputs.begin(), inputs.end()),
        edges_(inputs.size()),
        backward_(std::move(backward)) {
    lend_edges(edges_.data(), edges_.size());
    for (uint32_t i = 0; i < inputs.size(); ++i) connect(i, inputs[i]);
  }

  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override {
    std::vector<Tensor> gradients = backward_(grad_outputs[0]);
    if (gradients.size() != inputs_.size()) {
      fail(std::string(name()) + ": its function returned " + std::to_string(gradients.size()) +
           " gradients; allowed: " + std::to_string(inputs_.size()) + ", one for each input");
    }
    for (uint32_t i = 0; i < gradients.size(); ++i) {
      if (!needs(i) || !gradients[i]) continue;
      check_gradient(i, gradients[i]);
      grad_inputs[i] = std::move(gradients[i]);
    }
  }

 private:
  void check_gradient(uint32_t i, const Tensor& gradient) const {
    const Meta& input = inputs_[i];
    const bool is_alike = dims::operator==(shape_of(gradient), shape_of(input));
    if (is_alike && gradient.dtype() == input.dtype) return;
    fail(std::string(name()) + ": gradient " + std::to_string(i) + " is " + describe(gradient) +
         "; allowed: " + dtype_text(input.dtype) + " " +
         to_string(IntList(input.extents, input.ndim)) + ", as the input");
  }

  std::vector<Meta> inputs_;
  std::vector<Edge> edges_;
  GradFunction backward_;
};

}  // namespace
}  // namespace detail

Tensor with_gradient(const char* name, std::span<const Tensor> inputs, const Tensor& output,
                     GradFunction backward) {
  if (!detail::recording || !detail::requires_grad(inputs)) return output;
  if (output.requires_grad()) {
    detail::fail(std::string(name) + ": the output is part of a graph; allowed: one that was " +
                 "computed under a bp::NoGradGuard, or detach()");
  }
  Tensor result = detail::make_alias(output);
  detail::attach(detail::make_node<detail::CustomNode>(name, inputs, std::move(backward)), result);
  return result;
}

}  // namespace bp
