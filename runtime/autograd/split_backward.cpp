#include "runtime/autograd/split_backward.hpp"

#include <algorithm>
#include <unordered_map>

#include "runtime/autograd/engine.hpp"

namespace bp::detail {
namespace {

// Returns whether each node of the graph of `output` depends on the leaf `input`.
std::unordered_map<const Node*, bool> find_dependent_nodes(const Tensor& output,
                                                           const TensorImpl* input) {
  std::vector<const Node*> nodes;
  std::unordered_map<const Node*, bool> depends;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && depends.emplace(node, false).second) nodes.push_back(node);
  };
  visit(output.impl()->grad_fn);
  for (size_t i = 0; i < nodes.size(); ++i) {  // visit() makes the list grow.
    for (uint32_t k = 0; k < nodes[i]->input_count(); ++k) visit(nodes[i]->edge(k).node);
  }
  // A node comes behind all nodes of its inputs.
  std::ranges::sort(nodes, {}, &Node::sequence);
  for (const Node* node : nodes) {
    for (uint32_t k = 0; k < node->input_count(); ++k) {
      const Edge& edge = node->edge(k);
      const bool leads_there = edge.node != nullptr ? depends[edge.node] : edge.leaf == input;
      if (edge && leads_there) depends[node] = true;
    }
  }
  return depends;
}

// Limits what a node computes, for a scope.
class NeedsGuard {
 public:
  NeedsGuard(Node& node, const std::vector<uint8_t>& wanted) : node_(node) {
    node_.limit_needs(wanted.empty() ? nullptr : wanted.data());
  }
  ~NeedsGuard() { node_.limit_needs(nullptr); }
  NeedsGuard(const NeedsGuard&) = delete;
  NeedsGuard& operator=(const NeedsGuard&) = delete;

 private:
  Node& node_;
};

}  // namespace

SplitBackward::SplitBackward(const Tensor& output, const Tensor& input, const Tensor& gradient)
    : output_(output), input_(input), gradient_(gradient) {
  if (!input_) return;
  if (!input_.is_leaf() || !input_.requires_grad()) {
    fail("SplitBackward: the input is not a leaf that requires a gradient; allowed: such a leaf");
  }
  const GradModeGuard mode(false);
  if (has_hooks()) uses_ = find_leaf_uses({&output_, 1});
  run_with_end_calls([this] { run_inputs(); });
  if (!input_gradient_) {
    fail("SplitBackward: the output does not depend on the input; allowed: one that does");
  }
  output_ = gradient_ = {};
}

void SplitBackward::run_inputs() {
  const auto depends = find_dependent_nodes(output_, input_.impl());
  Targets targets;
  const TensorImpl& root = *output_.impl();
  deliver(targets,
          {root.grad_fn, root.grad_fn == nullptr ? output_.impl() : nullptr, root.output_index},
          Tensor(gradient_));
  while (!targets.empty()) {
    auto held = targets.extract(targets.begin());
    Target& target = held.mapped();
    if (target.node == nullptr) {
      input_gradient_ = std::move(target.gradients[0]);
      continue;
    }
    Node& node = *target.node;
    if (!depends.at(&node)) return;  // Only the root can be such a node.
    std::vector<uint8_t> others(node.input_count());
    target.wanted.resize(node.input_count());
    for (uint32_t i = 0; i < node.input_count(); ++i) {
      const Edge& edge = node.edge(i);
      if (!edge) continue;
      const bool leads_there =
          edge.node != nullptr ? depends.at(edge.node) : edge.leaf == input_.impl();
      (leads_there ? target.wanted : others)[i] = 1;
    }
    run_node(node, target, targets);
    if (std::ranges::find(others, 1) == others.end()) {
      node.free_saved();
    } else {
      target.wanted = std::move(others);
      later_.insert(std::move(held));
    }
  }
}

void SplitBackward::run_weights() {
  if (output_) return bp::backward({&output_, 1}, {&gradient_, 1});
  const GradModeGuard mode(false);
  run_with_end_calls([this] { run_others(); });
}

void SplitBackward::run_others() {
  while (!later_.empty()) {
    auto held = later_.extract(later_.begin());
    Target& target = held.mapped();
    if (target.node != nullptr) {
      run_node(*target.node, target, later_);
      target.node->free_saved();
    } else {
      accumulate(*target.leaf.impl(), std::move(target.gradients[0]));
      call_hooks(*target.leaf.impl());
    }
  }
}

void SplitBackward::deliver(Targets& targets, const Edge& edge, Tensor&& gradient) {
  Key key{edge.sequence(), UINT64_MAX};
  if (edge.node == nullptr) {
    const auto use = edge.leaf->hooks == nullptr ? uses_.end() : uses_.find(edge.leaf);
    key = {use == uses_.end() ? edge.leaf->sequence : use->second, edge.leaf->sequence};
  }
  Target& target = targets[key];
  if (edge.node != nullptr && target.node == nullptr) {
    retain(edge.node);
    target.node.reset(edge.node);
  }
  if (edge.leaf != nullptr && !target.leaf) {
    retain(edge.leaf);
    target.leaf = Tensor::adopt(edge.leaf);
  }
  add_to(target.gradients[edge.output_index], std::move(gradient));
}

void SplitBackward::run_node(Node& node, const Target& target, Targets& targets) {
  std::vector<Tensor> gradients(node.input_count());
  const NeedsGuard guard(node, target.wanted);
  node.backward(target.gradients.data(), gradients.data());
  for (uint32_t i = 0; i < node.input_count(); ++i) {
    if (node.needs(i) && gradients[i]) deliver(targets, node.edge(i), std::move(gradients[i]));
  }
}

}  // namespace bp::detail
