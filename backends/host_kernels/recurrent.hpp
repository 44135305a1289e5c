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
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {

// A GRU resets the state after its product with the weights, or before.
enum class Cell { kLstmCell, kResetAfter, kResetBefore, kTanhCell, kReluCell };

inline bool is_gru(Cell cell) { return cell == Cell::kResetAfter || cell == Cell::kResetBefore; }

// Returns the gates of the weights, each of which has a row for each unit.
inline int64_t gate_count(Cell cell) { return cell == Cell::kLstmCell ? 4 : is_gru(cell) ? 3 : 1; }

// A range of steps that lie behind each other.
struct Steps {
  int64_t first = 0, count = 0;
};

// A sequence. The views of tensors that the call lacks have no axes.
struct Recurrence {
  const char* op = "";
  Cell cell = Cell::kLstmCell;
  bp_dtype dtype = 0;
  int64_t steps = 0, rows = 0, inputs = 0, hidden = 0;
  bool is_reverse = false;
  View x, h, weight, recurrent, y, gates;
  IndexView lengths;
  Bounds length_bounds;

  bp_dtype sum_dtype() const { return dtype == BP_F64 ? BP_F64 : BP_F32; }
  uint64_t sum_bytes() const { return dtype == BP_F64 ? 8 : 4; }
  int64_t width() const { return gate_count(cell) * hidden; }
  // Returns which step is number `i` to run.
  int64_t step_at(int64_t i) const { return is_reverse ? steps - 1 - i : i; }
  bool has_lengths() const { return lengths.view.ndim != 0; }
};

struct SequenceForward : Recurrence {
  View c, bias, recurrent_bias, h_next, c_next;
};

struct SequenceBackward : Recurrence {
  View grad_y, grad_h_next, grad_c_next;
  View grad_h, grad_c, grad_x, grad_weight, grad_recurrent, grad_bias, grad_recurrent_bias;
};

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
