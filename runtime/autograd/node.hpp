// The recorded graph: a node for each recorded op, with edges to what made the op's inputs.
//
// A node is reference-counted: the tensors that it made hold it, and the nodes of ops that used
// these tensors. It holds what it saved. A saved output is held as an alias that does not know its
// node, so that no cycle arises.
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

// Where a gradient goes: to an output of a node, to a leaf, or nowhere. Owns a reference.
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
  int8_t output_index = -1;  // Of an output that has a gradient itself.
};

// Shape and dtype of an input, where the gradient needs no more of it.
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
  static constexpr uint32_t kMaxOutputs = 4;  // That have a gradient.

  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Sets grad_inputs[i], which are empty, for those inputs that needs(i). The gradient of an output
  // that nothing depended on is empty.
  virtual void backward(const Tensor* grad_outputs, Tensor* grad_inputs) = 0;

  const char* name() const { return name_; }
  uint64_t sequence() const { return sequence_; }
  uint32_t input_count() const { return edge_count_; }
  const Edge& edge(uint32_t input) const { return edges_[input]; }
  bool needs(uint32_t input) const { return static_cast<bool>(edges_[input]); }

  // Makes `input` lead to where `tensor` came from, if it requires a gradient.
  void connect(uint32_t input, const Tensor& tensor);
  void connect(uint32_t input, const Operand& operand) {
    if (operand.tensor() != nullptr) connect(input, *operand.tensor());
  }

  void save(uint32_t index, const Tensor& tensor);
  void save(uint32_t index, const Operand& operand);

  // Each tensor of a list, the first as input `first`.
  void connect_all(uint32_t first, std::span<const Tensor> tensors);

  // Saves what attach() makes output `output_index`.
  void save_output(uint32_t index, const Tensor& tensor, uint32_t output_index);

  // What was saved, as it was; `what` is its name for messages. Error if it has been changed in
  // place since, or has been freed.
  Tensor saved(uint32_t index, const char* what);
  Operand saved_operand(uint32_t index, const Tensor& tensor) const;

  // Lets go of what was saved.
  void free_saved();

 protected:
  Node(const char* name, Edge* edges, uint32_t edge_count, Saved* saved, uint32_t saved_count);
  virtual ~Node() = default;

  // For nodes whose number of inputs is known late.
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
  uint64_t sequence_;
  Node* next_garbage_ = nullptr;  // While it is being destroyed.
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

// Makes `tensor` output `output_index` of `node`, which it holds from now on; only a float has a
// gradient, and any other tensor stays as it is.
void attach(Node& node, const Tensor& tensor, uint32_t output_index = 0);
template <typename T>
void attach(NodePtr<T> node, const Tensor& tensor) {
  attach(*node, tensor);
}

// The next number in the order of recording.
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

// Whether an op with these inputs is recorded.
template <typename... T>
bool is_recorded(const T&... inputs) {
  return recording && (requires_grad(inputs) || ...);
}

// Refuses an input whose gradient would silently be missing.
[[noreturn]] void fail_no_gradient(const char* op, const char* name);
template <typename T>
void check_no_gradient(const char* op, const char* name, const T& input) {
  if (is_recorded(input)) [[unlikely]]
    fail_no_gradient(op, name);
}

// The device of the gradients that are not empty; one of them is not.
Device device_of(const Tensor* gradients, uint32_t count);

// `gradient`, or zeros in its place if it is empty.
Tensor or_zeros(const Tensor& gradient, const Meta& output, Device device);

// `gradient` summed over the axes along which an input of this shape was broadcast, in its dtype.
Tensor reduce_to(const Tensor& gradient, const Meta& input);

}  // namespace bp::detail

namespace bp::dims {

// How far along `axis` the tensor behind `items` begins.
int64_t before(std::span<const detail::Meta> items, int64_t axis);

}  // namespace bp::dims
