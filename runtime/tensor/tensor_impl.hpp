// What a Tensor points to. One allocation holds shape, strides and what autograd knows; the memory
// itself is a Storage, shared by all views of it.
#pragma once

#include <atomic>
#include <cstddef>

#include "backplane/runtime/tensor.hpp"
#include "ops_spec/dims.hpp"

namespace bp::detail {

class Node;

// Device memory and how often it was written in place. Reference-counted.
struct Storage {
  std::atomic<uint32_t> references{1};
  std::atomic<uint32_t> version{0};
  bp_block* block = nullptr;
  const bp_target* target = nullptr;
};

// Reference-counted. The counts are atomic; everything else is constant once the tensor is shared,
// except for the gradient of a leaf.
struct TensorImpl {
  bp_tensor view;  // First: Tensor::get() lends it. Its shape and strides point to `extents`.
  std::atomic<uint32_t> references{1};
  bool requires_grad = false;
  uint8_t output_index = 0;  // Of grad_fn.
  Storage* storage = nullptr;
  Node* grad_fn = nullptr;     // The recorded op that made this tensor; NULL for leaves.
  uint64_t sequence = 0;       // When a leaf first required a gradient: its place in backward().
  TensorImpl* grad = nullptr;  // Of a leaf.
  int64_t extents[size_t{2} * BP_MAX_RANK];

  int64_t* shape() { return extents; }
  int64_t* strides() { return extents + BP_MAX_RANK; }
};
static_assert(offsetof(TensorImpl, view) == 0);

// The number of elements of a shape. Error if an extent is negative, or if they cannot be counted,
// an extent of 0 taken for 1: the bound of every op.
int64_t count_elements(IntList shape);

// A tensor with memory for `count` extents of `shape`, without gaps, on the current stream.
TensorImpl* allocate(const bp_target& target, bp_dtype dtype, const int64_t* shape, uint32_t count);

inline Tensor allocate(const bp_target& target, const bp_op_output& output) {
  return Tensor::adopt(allocate(target, output.dtype, output.shape, output.ndim));
}

// A tensor of the same storage, with shape and strides to be set, unknown to the graph.
TensorImpl* make_alias(const TensorImpl& of, uint32_t ndim, int64_t element_offset = 0);

// The same with the same shape and strides.
Tensor make_alias(const Tensor& of);

inline const bp_target& target_of(const Tensor& tensor) {
  if (!tensor) throw_empty();
  return *tensor.impl()->storage->target;
}

inline void count_write(const Tensor& tensor) {
  tensor.impl()->storage->version.fetch_add(1, std::memory_order_relaxed);
}

inline dims::View shape_of(const Tensor& tensor) { return dims::shape(*tensor.get()); }

// "f32 (2, 3)"
std::string describe(const Tensor& tensor);

[[noreturn]] void fail(const std::string& message);  // Error of BP_INVALID_ARGUMENT.

// `axis` counted from 0, for a tensor of rank `ndim`; `name` is how the argument is called.
int64_t resolve_axis(const char* op, const char* name, int64_t axis, int64_t ndim);

}  // namespace bp::detail
