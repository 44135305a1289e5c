// The recorded graph has a node for each recorded op, with edges to what made the inputs of the op.
//
// Nodes are reference-counted. The tensors that a node made hold it, and so do the nodes of ops
// that used these tensors. A node holds what it saved. A saved output is held as an alias that does
// not know its node, so that no cycle arises.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>

#include "backplane/runtime/autograd.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::detail {

class Node;
void retain(Node* node) noexcept;
void release(Node* node) noexcept;

// The place that a gradient goes to: an output of a node, a leaf, or nowhere. An edge owns a
// reference.
struct Edge {
  Node* node = nullptr;
  TensorImpl* leaf = nullptr;
  uint32_t output_index = 0;

  explicit operator bool() const { return node != nullptr || leaf != nullptr; }
  uint64_t sequence() const;
};

// An input or output that the gradient needs.
struct Saved {
  Tensor tensor;  // Empty for a number, and for an optional input that was not given.
  bp_scalar scalar{};
  uint32_t version = 0;
  int8_t output_index = -1;  // Set for an output that has a gradient itself.
};

// Shape and dtype of an input whose elements the gradient does not need.
struct Meta {
  bp_dtype dtype = 0;  // 0: a number, or not given.
  uint32_t ndim = 0;
  int64_t extents[BP_MAX_RANK];

  Meta() = default;
  Meta(const Tensor& tensor);  // NOLINT: lists of tensors become lists of these.
  explicit Meta(const Operand& operand);
};

inline dims::View shape_of(const Meta& meta) { return {meta.extents, int64_t{meta.ndim}}; }

// Derived nodes own their arrays of edges and saved tensors, and lend them to this class.
class Node {
 public:
  static constexpr uint32_t kMaxOutputs = 4;  // Counts the outputs that have a gradient.

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Sets grad_inputs[i] for each input i with needs(i); all of grad_inputs are empty before. The
  // gradient of an output that nothing depended on is empty.
  virtual void backward(const Tensor* grad_outputs, Tensor* grad_inputs) = 0;

  const char* name() const { return name_; }
  uint64_t sequence() const { return sequence_; }
  uint32_t input_count() const { return edge_count_; }
  const Edge& edge(uint32_t input) const { return edges_[input]; }
  bool needs(uint32_t input) const {
    return static_cast<bool>(edges_[input]) && (wanted_ == nullptr || wanted_[input] != 0);
  }

  // While `wanted` is not NULL, needs(i) is false for each input i with wanted[i] == 0. The list is
  // borrowed.
  void limit_needs(const uint8_t* wanted) { wanted_ = wanted; }

  // Makes `input` lead to the origin of `tensor`, if the tensor requires a gradient.
  void connect(uint32_t input, const Tensor& tensor);
  void connect(uint32_t input, const Operand& operand) {
    if (operand.tensor() != nullptr) connect(input, *operand.tensor());
  }

  void save(uint32_t index, const Tensor& tensor);
  void save(uint32_t index, const Operand& operand);

  // Connects each tensor of a list; the first tensor becomes input `first`.
  void connect_all(uint32_t first, std::span<const Tensor> tensors);

  // Saves the tensor that attach() makes output `output_index`.
  void save_output(uint32_t index, const Tensor& tensor, uint32_t output_index);

  // Returns what was saved. Throws Error if the tensor was written in place since, or was freed.
  // `what` is its name for messages.
  Tensor saved(uint32_t index, const char* what);
  Operand saved_operand(uint32_t index, const Tensor& tensor) const;

  // Frees what was saved.
  void free_saved();

 protected:
  Node(const char* name, Edge* edges, uint32_t edge_count, Saved* saved, uint32_t saved_count);
  virtual ~Node() = default;

  // Sets the edges of a node that learns its number of inputs late.
  void lend_edges(Edge* edges, size_t count);

 private:
  friend void retain(Node* node) noexcept;
  friend void release(Node* node) noexcept;
  static void destroy(Node* node) noexcept;

  std::atomic<uint32_t> references_{1};
  uint32_t edge_count_;
  uint8_t saved_count_;
  bool is_freed_ = false;
  const char* name_;
  Edge* edges_;
  Saved* saved_;
  const uint8_t* wanted_ = nullptr;
  uint64_t sequence_;
  Node* next_garbage_ = nullptr;  // Set while the node is being destroyed.
};

struct NodeRelease {
  void operator()(Node* node) const { release(node); }
};
template <typename T>
using NodePtr = std::unique_ptr<T, NodeRelease>;

template <typename T, typename... Args>
NodePtr<T> make_node(Args&&... args) {
  return NodePtr<T>(new T(std::forward<Args>(args)...));
}

// Makes `tensor` output `output_index` of `node`, and the tensor holds the node from now on. Only a
// float has a gradient: a tensor of another dtype stays as it is.
void attach(Node& node, const Tensor& tensor, uint32_t output_index = 0);
template <typename T>
void attach(NodePtr<T> node, const Tensor& tensor) {
  attach(*node, tensor);
}

// Returns the next number in the order of recording.
uint64_t next_sequence() noexcept;

inline bool requires_grad(const Tensor& tensor) { return tensor && tensor.impl()->requires_grad; }
inline bool requires_grad(const Operand& operand) {
  return operand.tensor() != nullptr && requires_grad(*operand.tensor());
}
inline bool requires_grad(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (requires_grad(tensor)) return true;
  }
  return false;
}

// Returns whether an op with these inputs is recorded.
template <typename... T>
bool is_recorded(const T&... inputs) {
  return recording && (requires_grad(inputs) || ...);
}

// Throws Error for an input whose gradient would be missing without notice.
[[noreturn]] void fail_no_gradient(const char* op, const char* name);
template <typename T>
void check_no_gradient(const char* op, const char* name, const T& input) {
  if (is_recorded(input)) [[unlikely]]
    fail_no_gradient(op, name);
}

// Throws Error for a call that gives `what`, which came after the revision for which the gradient
// of the op was written.
[[noreturn]] void fail_later_gradient(const char* op, const char* what, uint32_t revision);

// Returns the device of the gradients that are not empty. At least one must not be empty.
Device device_of(const Tensor* gradients, uint32_t count);

// Returns `gradient`, or zeros if it is empty.
Tensor or_zeros(const Tensor& gradient, const Meta& output, Device device);

// Sums `gradient` over the axes along which an input of this shape was broadcast, and casts it to
// the dtype of the input.
Tensor reduce_to(const Tensor& gradient, const Meta& input);

}  // namespace bp::detail

namespace bp::dims {

// Returns how far along `axis` the tensor behind `items` begins.
int64_t before(std::span<const detail::Meta> items, int64_t axis);

}  // namespace bp::dims
