#include "runtime/autograd/node.hpp"

#include <algorithm>

#include "backplane/runtime/ops.hpp"
#include "runtime/ops/dispatch.hpp"

namespace bp::detail {

constinit thread_local bool recording = true;

namespace {

std::atomic<uint64_t> last_sequence{0};

uint32_t version_of(const Tensor& tensor) {
  return tensor.impl()->storage->version.load(std::memory_order_relaxed);
}

// Gives one reference back, and returns whether it was the last.
bool is_last(std::atomic<uint32_t>& references) {
  return references.load(std::memory_order_acquire) == 1 ||
         references.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

}  // namespace

uint64_t next_sequence() noexcept {
  return last_sequence.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t Edge::sequence() const { return node != nullptr ? node->sequence() : leaf->sequence; }

Meta::Meta(const Tensor& tensor) {
  if (!tensor) return;
  dtype = tensor.dtype();
  ndim = tensor.get()->ndim;
  std::copy_n(tensor.get()->shape, ndim, extents);
}

Meta::Meta(const Operand& operand) {
  if (operand.tensor() != nullptr) *this = Meta(*operand.tensor());
}

Node::Node(const char* name, Edge* edges, uint32_t edge_count, Saved* saved, uint32_t saved_count)
    : edge_count_(edge_count),
      saved_count_(static_cast<uint8_t>(saved_count)),
      name_(name),
      edges_(edges),
      saved_(saved),
      sequence_(next_sequence()) {}

void Node::connect(uint32_t input, const Tensor& tensor) {
  TensorImpl* impl = tensor.impl();
  if (impl == nullptr || !impl->requires_grad) return;
  if (impl->grad_fn != nullptr) {
    retain(impl->grad_fn);
    edges_[input] = {impl->grad_fn, nullptr, impl->output_index};
  } else {
    retain(impl);
    edges_[input] = {nullptr, impl, 0};
  }
}

void Node::connect_all(uint32_t first, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) connect(first++, tensor);
}

void Node::lend_edges(Edge* edges, size_t count) {
  edges_ = edges;
  edge_count_ = static_cast<uint32_t>(count);
}

void Node::save(uint32_t index, const Tensor& tensor) {
  if (!tensor) return;
  saved_[index].tensor = tensor;
  saved_[index].version = version_of(tensor);
}

void Node::save(uint32_t index, const Operand& operand) {
  if (operand.tensor() != nullptr) {
    save(index, *operand.tensor());
  } else {
    saved_[index].scalar = operand.scalar();
  }
}

void Node::save_output(uint32_t index, const Tensor& tensor, uint32_t output_index) {
  save(index, make_alias(tensor));
  saved_[index].output_index = static_cast<int8_t>(output_index);
}

Tensor Node::saved(uint32_t index, const char* what) {
  if (is_freed_) {
    fail(std::string(name_) + ": what its gradient needs was freed by an earlier backward; pass " +
         "retain_graph to that one");
  }
  const Saved& saved = saved_[index];
  if (!saved.tensor) return {};
  if (const uint32_t version = version_of(saved.tensor); version != saved.version) {
    fail(std::string(name_) + ": its gradient needs " + what + " as it was when the op ran, " +
         "and " + what + " was written in place since (" + describe(saved.tensor) + ", write " +
         std::to_string(version) + ", saved at " + std::to_string(saved.version) + ")");
  }
  if (saved.output_index < 0 || !recording) return saved.tensor;
  // In the graph of the gradients, the alias stands for the output of the op.
  Tensor output = make_alias(saved.tensor);
  attach(*this, output, static_cast<uint32_t>(saved.output_index));
  return output;
}

Operand Node::saved_operand(uint32_t index, const Tensor& tensor) const {
  return tensor ? Operand(tensor) : Operand(Scalar(saved_[index].scalar));
}

void Node::free_saved() {
  for (uint32_t i = 0; i < saved_count_; ++i) saved_[i].tensor = {};
  is_freed_ = saved_count_ > 0;
}

void retain(Node* node) noexcept { node->references_.fetch_add(1, std::memory_order_relaxed); }

void release(Node* node) noexcept {
  if (node != nullptr && is_last(node->references_)) Node::destroy(node);
}

// Destroys nodes from a list in place of recursion, because a graph is as deep as its program is
// long.
void Node::destroy(Node* node) noexcept {
  Node* garbage = node;
  const auto drop_node = [&](Node* made_by) {
    if (made_by == nullptr || !is_last(made_by->references_)) return;
    made_by->next_garbage_ = garbage;
    garbage = made_by;
  };
  // Takes the node off a tensor that is about to be destroyed, so that the destructor of the tensor
  // does not recurse into the node.
  const auto drop_tensor = [&](TensorImpl* impl) {
    if (impl == nullptr) return;
    Node* made_by = nullptr;
    if (impl->references.load(std::memory_order_acquire) == 1) {
      made_by = std::exchange(impl->grad_fn, nullptr);
    }
    release(impl);
    drop_node(made_by);
  };
  while (garbage != nullptr) {
    Node* dead = std::exchange(garbage, garbage->next_garbage_);
    for (uint32_t i = 0; i < dead->edge_count_; ++i) {
      drop_node(dead->edges_[i].node);
      drop_tensor(dead->edges_[i].leaf);
    }
    for (uint32_t i = 0; i < dead->saved_count_; ++i) {
      TensorImpl* impl = dead->saved_[i].tensor.impl();
      if (impl == nullptr) continue;
      retain(impl);
      dead->saved_[i].tensor = {};
      drop_tensor(impl);
    }
    delete dead;
  }
}

void attach(Node& node, const Tensor& tensor, uint32_t output_index) {
  TensorImpl* impl = tensor.impl();
  if (!is_float(impl->view.dtype)) return;  // A cast to an integer is a step and has no gradient.
  retain(&node);
  impl->grad_fn = &node;
  impl->output_index = static_cast<uint8_t>(output_index);
  impl->requires_grad = true;
}

void fail_no_gradient(const char* op, const char* name) {
  fail(std::string(op) + ": " + name + " requires a gradient, and " + op + " has none for it; " +
       "detach() it, or put the call under a bp::NoGradGuard");
}

void fail_later_gradient(const char* op, const char* what, uint32_t revision) {
  fail(std::string(op) + ": " + what + " is given, and the gradient was written for revision " +
       std::to_string(revision) + "; call it without, or under a bp::NoGradGuard");
}

Device device_of(const Tensor* gradients, uint32_t count) {
  return std::find_if(gradients, gradients + count, [](const Tensor& t) { return bool(t); })
      ->device();
}

Tensor or_zeros(const Tensor& gradient, const Meta& output, Device device) {
  return gradient ? gradient : zeros({output.extents, output.ndim}, output.dtype, device);
}

Tensor reduce_to(const Tensor& gradient, const Meta& input) {
  if (dims::operator==(shape_of(gradient), shape_of(input))) return gradient.to(input.dtype);
  const int64_t lead = gradient.ndim() - input.ndim;
  std::array<int64_t, BP_MAX_RANK> axes{};
  size_t count = 0;
  for (int64_t axis = 0; axis < gradient.ndim(); ++axis) {
    const bool is_broadcast = axis < lead || (input.extents[axis - lead] == 1 &&
                                              gradient.shape()[static_cast<size_t>(axis)] != 1);
    if (is_broadcast) axes[count++] = axis;
  }
  Tensor sum = bp::sum(gradient, {axes.data(), count}, true);
  return sum.reshape({input.extents, input.ndim}).to(input.dtype);
}

}  // namespace bp::detail

namespace bp::dims {

int64_t before(std::span<const detail::Meta> items, int64_t axis) {
  int64_t extent = 0;
  for (const detail::Meta& item : items) extent = add(extent, at(shape_of(item), axis));
  return extent;
}

}  // namespace bp::dims
