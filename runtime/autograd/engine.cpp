// Runs the recorded graph backward.
//
// A node is recorded after everything that its inputs came from. Running nodes by falling sequence
// number therefore reaches each node after all nodes that depend on it, and nothing has to count
// dependencies. Leaves stand in the same order, by when they first required a gradient. Gradients
// that meet are added in the order in which they arrive, so this order is fixed as well.
//
// A leaf is older than all nodes that use it, so it would come after all nodes. If leaves have
// hooks, a walk of the graph first finds the earliest node that uses each leaf, and the leaf comes
// right behind this node: its gradient is complete there. This changes no sum.
#include "runtime/autograd/engine.hpp"

#include <array>
#include <compare>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "registry/tensors/floats.hpp"
#include "runtime/autograd/hooks.hpp"
#include "runtime/autograd/node.hpp"

namespace bp {
namespace detail {
namespace {

// Returns whether nobody else sees the tensor or its memory. Such a tensor may be written in place
// or given away.
bool is_unshared(const Tensor& tensor) {
  return is_only_handle(tensor) && !tensor.impl()->requires_grad && tensor.is_contiguous();
}

using EndCalls = std::vector<std::function<void(bool)>>;

// What the run of this thread calls at its end; NULL without a run.
constinit thread_local EndCalls* end_calls = nullptr;

// Makes `own` the list of this thread. Runs nest, since a function that a run calls may start one.
class EndCallsGuard {
 public:
  explicit EndCallsGuard(EndCalls& own) : outer_(std::exchange(end_calls, &own)) {}
  ~EndCallsGuard() { end_calls = outer_; }
  EndCallsGuard(const EndCallsGuard&) = delete;
  EndCallsGuard& operator=(const EndCallsGuard&) = delete;

 private:
  EndCalls* outer_;
};

}  // namespace

void add_to(Tensor& sum, Tensor&& gradient) {
  if (!sum) {
    sum = std::move(gradient);
  } else if (!recording && is_unshared(sum)) {
    add_out(sum, sum, gradient);
  } else {
    sum = add(sum, gradient);
  }
}

void accumulate(TensorImpl& leaf, Tensor&& gradient) {
  if (leaf.grad == nullptr) {
    const bool may_keep = is_unshared(gradient) || (gradient.impl()->requires_grad && recording);
    Tensor kept = may_keep ? std::move(gradient) : gradient.clone();
    retain(kept.impl());
    leaf.grad = kept.impl();
    return;
  }
  retain(leaf.grad);
  Tensor held = Tensor::adopt(leaf.grad);
  if (!recording && !held.requires_grad()) {
    add_out(held, held, gradient);
    return;
  }
  Tensor sum = add(held, gradient);
  retain(sum.impl());
  release(leaf.grad);
  leaf.grad = sum.impl();
}

void run_with_end_calls(const std::function<void()>& body) {
  EndCalls calls;
  try {
    const EndCallsGuard guard(calls);
    body();
  } catch (...) {
    for (const auto& call : calls) call(false);
    throw;
  }
  for (const auto& call : calls) call(true);
}

namespace {

// The place of a target in a run. Targets run by falling keys.
struct Key {
  uint64_t when;  // Its own number. For a leaf with hooks, the number of the node that it follows.
  uint64_t leaf;  // The number of a leaf; UINT64_MAX for a node, which comes before its leaves.

  friend auto operator<=>(const Key&, const Key&) = default;
};

// One target of gradients that has not been run.
struct Pending {
  Node* node = nullptr;
  TensorImpl* leaf = nullptr;
  std::array<Tensor, Node::kMaxOutputs> gradients;
};

// The gradient of one input of grad(), and where it turns up.
struct Capture {
  uint64_t sequence;
  uint32_t output_index;
  Tensor gradient;
};

class Engine {
 public:
  explicit Engine(const GradOptions& options)
      : keeps_graph_(options.retain_graph || options.create_graph) {}

  void add_root(const Tensor& output, const Tensor& gradient) {
    const TensorImpl& impl = *output.impl();
    const Edge edge{impl.grad_fn, impl.grad_fn == nullptr ? output.impl() : nullptr,
                    impl.output_index};
    deliver(edge, Tensor(gradient));
  }

  // Asks for the gradient of `input`. If there are captures, leaves keep no gradients.
  void add_capture(const Tensor& input) {
    const TensorImpl& impl = *input.impl();
    captures_.push_back({impl.grad_fn != nullptr ? impl.grad_fn->sequence() : impl.sequence,
                         impl.output_index,
                         {}});
    last_ = std::min(last_, captures_.back().sequence);
  }

  // Finds where leaves with hooks come. It is called before the roots are added.
  void order_leaves(std::span<const Tensor> outputs) {
    if (has_hooks()) uses_ = find_leaf_uses(outputs);
  }

  void run() {
    run_with_end_calls([this] { run_pending(); });
  }

  std::vector<Capture>& captures() { return captures_; }

 private:
  void run_pending() {
    while (!pending_.empty()) {
      const auto next = pending_.begin();
      if (!captures_.empty() && next->first.when < last_) break;
      const auto held = pending_.extract(next);
      capture(held.key().when, held.mapped());
      // No wanted gradient lies beyond, and the node of the last input keeps what it saved.
      if (!captures_.empty() && held.key().when == last_) break;
      if (held.mapped().node != nullptr) {
        run_node(held.mapped());
      } else if (captures_.empty()) {
        accumulate(*held.mapped().leaf, std::move(held.mapped().gradients[0]));
        call_hooks(*held.mapped().leaf);
      }
    }
  }

  Key key_of(const Edge& edge) const {
    if (edge.node != nullptr) return {edge.node->sequence(), UINT64_MAX};
    const uint64_t own = edge.leaf->sequence;
    const auto use = edge.leaf->hooks == nullptr ? uses_.end() : uses_.find(edge.leaf);
    return {use == uses_.end() ? own : use->second, own};
  }

  void deliver(const Edge& edge, Tensor&& gradient) {
    Pending& pending = pending_[key_of(edge)];
    pending.node = edge.node;
    pending.leaf = edge.leaf;
    add_to(pending.gradients[edge.output_index], std::move(gradient));
  }

  void capture(uint64_t sequence, const Pending& pending) {
    for (Capture& capture : captures_) {
      if (capture.sequence == sequence) capture.gradient = pending.gradients[capture.output_index];
    }
  }

  void run_node(Pending& pending) {
    Node& node = *pending.node;
    std::array<Tensor, 8> few;  // Most ops have at most 8 inputs.
    std::vector<Tensor> many(node.input_count() > few.size() ? node.input_count() : 0);
    const std::span<Tensor> gradients = many.empty() ? std::span<Tensor>(few) : many;
    node.backward(pending.gradients.data(), gradients.data());
    pending.gradients = {};
    if (!keeps_graph_) node.free_saved();
    for (uint32_t i = 0; i < node.input_count(); ++i) {
      if (node.needs(i) && gradients[i]) deliver(node.edge(i), std::move(gradients[i]));
    }
  }

  std::map<Key, Pending, std::greater<>> pending_;
  LeafUses uses_;
  std::vector<Capture> captures_;
  uint64_t last_ = UINT64_MAX;
  bool keeps_graph_;
};

void add_roots(Engine& engine, const char* call, std::span<const Tensor> outputs,
               std::span<const Tensor> gradients) {
  if (!gradients.empty() && gradients.size() != outputs.size()) {
    fail(std::string(call) + ": there are " + std::to_string(outputs.size()) + " outputs and " +
         std::to_string(gradients.size()) + " gradients; allowed: as many, or none");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!output.requires_grad()) {
      fail(std::string(call) + ": output " + std::to_string(i) +
           " depends on nothing that requires a gradient");
    }
    Tensor gradient = i < gradients.size() ? gradients[i] : Tensor();
    if (!gradient) {
      if (output.numel() != 1) {
        fail(std::string(call) + ": output " + std::to_string(i) + " has the shape " +
             to_string(output.shape()) + "; allowed without a gradient: one element");
      }
      gradient = ones_like(output);
    } else if (gradient.shape() != output.shape() || gradient.dtype() != output.dtype() ||
               gradient.device() != output.device()) {
      fail(std::string(call) + ": gradient " + std::to_string(i) + " is " + describe(gradient) +
           " on " + gradient.device().name() + "; allowed: " + describe(output) + " on " +
           output.device().name() + ", as the output");
    }
    engine.add_root(output, gradient);
  }
}

}  // namespace
}  // namespace detail

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grad_outputs, const GradOptions& options) {
  const GradModeGuard mode(options.create_graph);
  detail::Engine engine(options);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) {
      detail::fail("grad: input " + std::to_string(i) + " does not require a gradient");
    }
    engine.add_capture(inputs[i]);
  }
  if (inputs.empty()) {
    detail::fail("grad: the list of inputs is empty; allowed: at least one tensor");
  }
  detail::add_roots(engine, "grad", outputs, grad_outputs);
  engine.run();
  std::vector<Tensor> result;
  for (detail::Capture& capture : engine.captures()) {
    if (!capture.gradient && !options.allow_unused) {
      detail::fail("grad: the outputs do not depend on input " + std::to_string(result.size()) +
                   "; allowed with allow_unused");
    }
    result.push_back(std::move(capture.gradient));
  }
  return result;
}

std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs,
                         const GradOptions& options) {
  return grad({&output, 1}, {inputs.begin(), inputs.size()}, {}, options);
}

void backward(std::span<const Tensor> outputs, std::span<const Tensor> grad_outputs,
              const GradOptions& options) {
  const GradModeGuard mode(options.create_graph);
  detail::Engine engine(options);
  engine.order_leaves(outputs);
  detail::add_roots(engine, "backward", outputs, grad_outputs);
  engine.run();
}

void after_backward(std::function<void(bool)> call) {
  if (detail::end_calls == nullptr) {
    detail::fail(
        "after_backward: no backward() runs on this thread; allowed: calls from the "
        "functions that a run calls");
  }
  detail::end_calls->push_back(std::move(call));
}

// ---- What a tensor knows of the graph ----------------------------------------------------------

bool Tensor::requires_grad() const {
  get();
  return impl_->requires_grad;
}

bool Tensor::is_leaf() const {
  get();
  return impl_->grad_fn == nullptr;
}

const Tensor& Tensor::set_requires_grad(bool required) const {
  if (!is_leaf()) {
    detail::fail("set_requires_grad: the tensor is the result of " +
                 std::string(impl_->grad_fn->name()) + "; allowed: leaves. Use detach() first");
  }
  if (required && !tensors::is_plain_float(dtype())) {
    detail::fail("set_requires_grad: the dtype is " + dtype_text(dtype()) +
                 "; allowed: f16, bf16, f32, f64");
  }
  impl_->requires_grad = required;
  if (required && impl_->sequence == 0) impl_->sequence = detail::next_sequence();
  return *this;
}

Tensor Tensor::grad() const {
  get();
  if (impl_->grad == nullptr) return {};
  detail::retain(impl_->grad);
  return adopt(impl_->grad);
}

void Tensor::set_grad(const Tensor& grad) const {
  get();
  if (grad && (grad.shape() != shape() || grad.dtype() != dtype() || grad.device() != device())) {
    detail::fail("set_grad: the gradient is " + detail::describe(grad) + " on " +
                 grad.device().name() + "; allowed: " + detail::describe(*this) + " on " +
                 device().name());
  }
  if (grad) detail::retain(grad.impl());
  if (impl_->grad != nullptr) detail::release(impl_->grad);
  impl_->grad = grad.impl();
}

void Tensor::backward() const { backward(Tensor()); }

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  const std::span<const Tensor> gradients(&gradient, gradient ? 1 : 0);
  bp::backward({this, 1}, gradients, {.retain_graph = retain_graph, .create_graph = create_graph});
}

}  // namespace bp
