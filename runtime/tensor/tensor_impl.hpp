// The object that a Tensor points to. One allocation holds shape, strides and what autograd knows.
// The memory itself is a Storage, which all its views share.
#pragma once

#include <atomic>
#include <cstddef>

#include "backplane/runtime/tensor.hpp"
#include "ops_spec/dims.hpp"

namespace bp::detail {

class Node;

struct GradHooks;
struct Storage;

// A TensorImpl is reference-counted. The counts are atomic. Everything else is constant once the
// tensor is shared, except for the gradient of a leaf, and for what rebind() changes.
struct TensorImpl {
  // Tensor::get() lends `view`, so it is the first member. Its shape and strides point to
  // `extents`.
  bp_tensor view;
  std::atomic<uint32_t> references{1};
  bool requires_grad = false;
  uint8_t output_index = 0;  // The output of grad_fn that this tensor is.
  Storage* storage = nullptr;
  Storage* home = nullptr;  // The Storage in which this object lies; NULL if it lies in none.
  Node* grad_fn = nullptr;  // The recorded op that made this tensor; NULL for leaves.
  // When a leaf first required a gradient. backward() reaches leaves by this number.
  uint64_t sequence = 0;
  TensorImpl* grad = nullptr;  // Set for leaves only.
  GradHooks* hooks = nullptr;  // Owned; NULL unless a GradHook was made for this leaf.
  int64_t extents[size_t{2} * BP_MAX_RANK];

  int64_t* shape() { return extents; }
  int64_t* strides() { return extents + BP_MAX_RANK; }
};
static_assert(offsetof(TensorImpl, view) == 0);

// Device memory, with the number of times that it was written in place. A Storage is
// reference-counted. The first tensor of the memory lies in the Storage, so that both take one
// allocation. That tensor refers to the Storage, so its place exists as long as the tensor, also if
// rebind() gave the tensor other memory.
struct Storage {
  std::atomic<uint32_t> references{1};
  std::atomic<uint32_t> version{0};
  bp_block* block = nullptr;  // NULL if the memory was given back.
  const bp_target* target = nullptr;
  TensorImpl first;
};

// Returns the number of elements of a shape. Throws Error if an extent is negative, or if the
// product of the extents, with 1 in place of 0, is more than any op takes.
int64_t count_elements(IntList shape);

// Returns a tensor with memory for `count` extents of `shape`, without gaps, on the current stream.
TensorImpl* allocate(const bp_target& target, bp_dtype dtype, const int64_t* shape, uint32_t count);

inline Tensor allocate(const bp_target& target, const bp_op_output& output) {
  return Tensor::adopt(allocate(target, output.dtype, output.shape, output.ndim));
}

// Returns a tensor of the same storage, unknown to the graph. The caller sets shape and strides.
TensorImpl* make_alias(const TensorImpl& of, uint32_t ndim, int64_t element_offset = 0);

// Returns a tensor of the same storage, shape and strides, unknown to the graph.
Tensor make_alias(const Tensor& of);

// Returns a tensor without memory. Ops refuse it if it has elements.
Tensor make_absent(const bp_target& target, bp_dtype dtype, IntList shape);

// Makes `tensor` see the memory, the dtype and the strides of `data`, which has its shape and its
// device. All handles of the tensor see them, and so do graphs that saved it. The old memory is
// given back, unless views of the tensor exist: they keep it as long as the tensor lives. No other
// thread may use the tensor meanwhile.
void rebind(const Tensor& tensor, const Tensor& data);

// Returns whether nobody else holds the tensor or its memory.
bool is_only_handle(const Tensor& tensor);

// Throws Error if the tensor has elements and no memory.
void check_present(const char* call, const Tensor& tensor);

inline const bp_target& target_of(const Tensor& tensor) {
  if (!tensor) throw_empty();
  return *tensor.impl()->storage->target;
}

inline void count_write(const Tensor& tensor) {
  tensor.impl()->storage->version.fetch_add(1, std::memory_order_relaxed);
}

// Returns whether elements of the dtype are codes of at most 8 bits that decoded() turns into
// numbers: packed integers, and floats of 4 to 8 bits.
bool is_coded(bp_dtype dtype);

// Returns the elements of such a tensor, which the host has read, in i64 or f32.
Tensor decoded(const Tensor& x);

inline dims::View shape_of(const Tensor& tensor) { return dims::shape(*tensor.get()); }

// Returns text like "f32 (2, 3)".
std::string describe(const Tensor& tensor);

[[noreturn]] void fail(const std::string& message);  // Throws Error of BP_INVALID_ARGUMENT.

// Returns `axis` counted from 0, for a tensor of rank `ndim`. `name` names the argument in
// messages.
int64_t resolve_axis(const char* op, const char* name, int64_t axis, int64_t ndim);

}  // namespace bp::detail
