// A backward in two halves: the gradient of one input first, and the gradients of the other leaves,
// which are mostly weights, at any later time.
//
//   SplitBackward halves(y, x, gradient_of_y);
//   send(halves.take_input_gradient());
//   ...
//   halves.run_weights();   // Now the other leaves have the gradients of
//   y.backward(gradient_of_y).
//
// The first half runs the nodes that depend on x, and asks them only for the gradients that lead to
// x. If such a node has other inputs too, it keeps what it saved, and the gradients of its outputs
// are kept with it. The second half runs these nodes again for the other inputs, and then the nodes
// that do not depend on x. An op with a kernel for each gradient, such as a linear layer, therefore
// does each piece of its work once. An op that computes all its gradients in one kernel, such as a
// norm, runs twice.
//
// Rules:
//   Threads    One thread at a time, as for backward().
//   Errors     Throws bp::Error. After an error the object can only be destroyed.
//   Ownership  It shares the graph until the second half has run. The graph runs once.
//   Bits       The gradients equal those of backward() in every bit.
//   Hooks      The hooks of leaves are called in the second half. x gets no grad(), and its hooks
//              are not called.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/autograd/hooks.hpp"
#include "runtime/autograd/node.hpp"

namespace bp::detail {

class SplitBackward {
 public:
  // Runs the first half. `output` depends on `input`, a leaf that requires a gradient. If `input`
  // is empty, the second half does everything. `gradient` is the gradient of `output`.
  SplitBackward(const Tensor& output, const Tensor& input, const Tensor& gradient);

  // Gives the gradient of the input away. It is empty if there is no input.
  Tensor take_input_gradient() { return std::move(input_gradient_); }

  // Runs the second half. It is called once.
  void run_weights();

 private:
  // A node or a leaf that gradients have reached.
  struct Target {
    NodePtr<Node> node;  // NULL for a leaf.
    Tensor leaf;
    std::array<Tensor, Node::kMaxOutputs> gradients;
    std::vector<uint8_t> wanted;  // The inputs that get a gradient. It is empty for all inputs.
  };
  // Targets run by falling keys, in the order of backward(): the number of a node, or of the node
  // behind which a leaf comes, and the own number of a leaf, UINT64_MAX for a node.
  using Key = std::pair<uint64_t, uint64_t>;
  using Targets = std::map<Key, Target, std::greater<>>;

  void run_inputs();
  void run_others();
  void deliver(Targets& targets, const Edge& edge, Tensor&& gradient);
  // Runs a node for the inputs that `wanted` names, and gives their gradients to `targets`.
  void run_node(Node& node, const Target& target, Targets& targets);

  Tensor output_, input_, gradient_, input_gradient_;
  LeafUses uses_;
  Targets later_;
};

}  // namespace bp::detail
