// Recurrent sequences: what the kernels of lstm, gru, rnn and of their gradients share.
//
// The products of x with the weights need no state, so they are made for many steps at once
// (gemm.hpp). A step then has the product of the state, for which `recurrent` is packed once, and
// the cell. A task of a step is a block of units with all their gates: it makes their sums, and the
// cell takes them from the first-level cache. Threads share the blocks, and meet after each step.
// Everything is kept in the dtype of the sums, f32 for f16 and bf16.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/gemm.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/recurrent.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

// A range of steps that lie behind each other.
struct Steps {
  int64_t first = 0, count = 0;
};

// A sequence. The views of tensors that the call lacks have no axes.
using Recurrence = RecurrenceOf<View>;
using SequenceForward = SequenceForwardOf<View>;
using SequenceBackward = SequenceBackwardOf<View>;

inline bool is_given(const View& view) { return view.ndim != 0; }

// Writes the lengths of all rows, by their bounds. Throws StatusError of BP_DATA_FAILURE if one is
// out of range and may not be.
void read_lengths(const Recurrence& r, int64_t* lengths);

// Returns how many steps share the products that need no state, so that their sums stay in a cache.
int64_t steps_at_once(const Recurrence& r);

// Returns the address of the first element of a row of a tensor (steps, rows, elements), or (rows,
// elements) with step 0.
inline std::byte* row_of(const View& view, bp_dtype dtype, int64_t step, int64_t row) {
  const int64_t step_stride = view.ndim == 3 ? view.strides[0] : 0;
  const int64_t offset = step * step_stride + row * view.strides[view.ndim - 2];
  return view.address + offset * dtype_size_bytes(dtype);
}

// Returns a matrix of two axes.
Matrix matrix_of(const View& view, bp_dtype dtype);

// Return the workspace that the functions below need.
uint64_t workspace_size_bytes(const SequenceForward& s, int thread_count);
uint64_t workspace_size_bytes(const SequenceBackward& s, int thread_count);

// Run a sequence, and its gradients.
void run_sequence(const SequenceForward& s, std::byte* workspace, int thread_count);
void run_sequence(const SequenceBackward& s, std::byte* workspace, int thread_count);

}  // namespace bp::kernels
