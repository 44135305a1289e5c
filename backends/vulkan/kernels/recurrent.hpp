// Recurrent sequences: what the kernels of lstm, gru, rnn and of their gradients share.
//
// The products of x with the weights need no state, so they are made for many steps at once. A step
// then has the product of the state with the recurrent weights, and one dispatch for the cell.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernels/product.hpp"
#include "backends/vulkan/kernels/scratch.hpp"
#include "backplane/shell/recurrent.hpp"

namespace bp::vulkan {

// A sequence. The tensors that the call lacks are NULL.
using Recurrence = RecurrenceOf<const bp_tensor*>;
using SequenceForward = SequenceForwardOf<const bp_tensor*>;
using SequenceBackward = SequenceBackwardOf<const bp_tensor*>;

// ---- Products ----------------------------------------------------------------------------------

// A matrix in a tensor: where it begins, and its strides, in elements.
struct Part {
  const bp_tensor* tensor;
  int64_t first, row_stride, col_stride;
  int64_t batch_stride = 0;

  Part transposed() const { return {tensor, first, col_stride, row_stride, batch_stride}; }
};

// The extents of a product y (m, n) = a (m, k) b (k, n), of which there are `batches`.
struct ProductExtents {
  int64_t m, n, k, batches = 1;
};

// Makes a product. Without a launch the matrices have no addresses.
Product make_product(const Launch* launch, const ProductExtents& extents, const Part& a,
                     const Part& b, const Part& y);

// The steps and rows of a tensor (steps, rows, elements) as the rows of one matrix, or of a matrix
// for each step.
struct StepRows {
  explicit StepRows(const bp_tensor& t);

  // Returns the matrices of `count` steps from `first` on, which have part.row_stride.
  Part part(const bp_tensor& t, int64_t first) const {
    return {&t, first * t.strides[0], row_stride, t.strides[2], is_even ? 0 : t.strides[0]};
  }
  ProductExtents extents(int64_t steps, int64_t n, int64_t k) const {
    return {is_even ? steps * rows : rows, n, k, is_even ? 1 : steps};
  }
  // Returns the same rows of a tensor without gaps.
  Part dense(const bp_tensor& t, int64_t first_row, int64_t width) const {
    return {&t, first_row * width, width, 1, is_even ? 0 : rows * width};
  }

  bool is_even;
  int64_t rows, row_stride;
};

// ---- Elements ----------------------------------------------------------------------------------

// Elements (row, unit) of a tensor as the shaders read them. Strides are in bytes.
struct StepElements {
  uint64_t address;
  int64_t row, unit;
};

// Returns the elements of one step of a tensor (steps, rows, units), or all of one (rows, units),
// or (units). A tensor that is NULL has address 0.
StepElements elements_of(const Launch& launch, const bp_tensor* t, int64_t step = 0);

// Returns the address of element `first` of a buffer, and 0 if it has no elements.
uint64_t address_at(const Launch& launch, const ScratchTensor& buffer, int64_t first = 0);

// Returns how many units an invocation of the shaders has: several neighbours where a load costs
// much more than arithmetic.
inline uint32_t units_of_invocation(const Env& env, int64_t units) {
  return env.is_processor() && units % 4 == 0 ? 4 : 1;
}

// ---- Work --------------------------------------------------------------------------------------

// Writes how many steps each row has, if the call has lengths. Lengths that may not be out of range
// make the stream fail.
bp_status submit_lengths(Launch& launch, const Recurrence& r, const ScratchTensor& lengths);

// Returns the workspace of a sequence.
uint64_t sequence_workspace(const SequenceForward& s, const Env& env);
uint64_t sequence_workspace(const SequenceBackward& s, const Env& env);

// Submit all of a sequence, and of its gradients.
bp_status submit_sequence(const SequenceForward& s, Launch& launch);
bp_status submit_sequence(const SequenceBackward& s, Launch& launch);

}  // namespace bp::vulkan
