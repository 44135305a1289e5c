// Recurrent sequences: what the kernels of lstm, gru, rnn and of their gradients share.
//
// The products of x with the weights need no state, so they are made for many steps at once. A step
// has the product of the state with `recurrent`, and then one kernel of the cell, with a thread for
// each unit of each row, which applies the gates and stores what the step leaves. The gradients run
// the steps in the other order, with one kernel and one product each, and multiply the gradients of
// all steps at the end. If a GRU resets the state before the product, a step has two kernels and
// two products. cuBLASLt makes the products where it serves (repeated_product.hpp).
//
// The limit of small steps is the time from one launch to the next, because a step begins when the
// step before it has ended. Each step reads `recurrent`, which should lie in the L2 cache. With
// many rows the limit is that of the products.
//
// Sums and the gradients within a sequence are f32 for f16 and bf16. The state has the dtype of x.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/repeated_product.hpp"

namespace bp::cuda {

enum class Cell : uint32_t { kLstmCell, kResetAfter, kResetBefore, kTanhCell, kReluCell };

constexpr bool is_gru(Cell cell) { return cell == Cell::kResetAfter || cell == Cell::kResetBefore; }

// Returns the gates of the weights, each of which has a row for each unit.
constexpr int64_t gate_count(Cell cell) {
  return cell == Cell::kLstmCell ? 4 : is_gru(cell) ? 3 : 1;
}

// A sequence, with the tensors of its call. A tensor that the call lacks is NULL.
struct Recurrence {
  Cell cell = Cell::kLstmCell;
  int64_t steps = 0, rows = 0, inputs = 0, hidden = 0;
  bool is_reverse = false;
  uint32_t bounds = 0;  // Of the lengths.
  const bp_tensor *x = nullptr, *h = nullptr, *weight = nullptr, *recurrent = nullptr;
  const bp_tensor *lengths = nullptr, *y = nullptr, *gates = nullptr;

  bp_dtype dtype() const { return x->dtype; }
  bp_dtype sum_dtype() const { return x->dtype == BP_F64 ? BP_F64 : BP_F32; }
  bool is_narrow() const { return dtype() != sum_dtype(); }
  int64_t sum_bytes() const { return x->dtype == BP_F64 ? 8 : 4; }
  int64_t width() const { return gate_count(cell) * hidden; }
  // Returns the gates whose product with the state is one: those before a reset of the state.
  int64_t joint_width() const { return cell == Cell::kResetBefore ? 2 * hidden : width(); }
  // Returns which step is number `i` to run.
  int64_t step_at(int64_t i) const { return is_reverse ? steps - 1 - i : i; }
};

struct SequenceForward : Recurrence {
  const bp_tensor *c = nullptr, *bias = nullptr, *recurrent_bias = nullptr;
  const bp_tensor *h_next = nullptr, *c_next = nullptr;
};

struct SequenceBackward : Recurrence {
  const bp_tensor *grad_y = nullptr, *grad_h_next = nullptr, *grad_c_next = nullptr;
  const bp_tensor *grad_h = nullptr, *grad_c = nullptr, *grad_x = nullptr;
  const bp_tensor *grad_weight = nullptr, *grad_recurrent = nullptr;
  const bp_tensor *grad_bias = nullptr, *grad_recurrent_bias = nullptr;
};

// Returns the workspace of a sequence. The device's context is current.
uint64_t sequence_workspace_bytes(const SequenceForward& s, const Env& env);
uint64_t sequence_workspace_bytes(const SequenceBackward& s, const Env& env);

// Submit a sequence, and its gradients.
bp_status launch_sequence(const SequenceForward& s, Launch& launch);
bp_status launch_sequence(const SequenceBackward& s, Launch& launch);

// ---- Workspace ----------------------------------------------------------------------------------

// Reserves parts of a workspace behind each other.
class Parts {
 public:
  // Returns the offset of a part of `count` elements.
  uint64_t reserve(int64_t count, int64_t size_bytes) {
    const uint64_t offset = end_;
    end_ += rounded_part(static_cast<uint64_t>(count * size_bytes));
    return offset;
  }
  // Makes room for the largest workspace of these products.
  template <typename... Products>
  uint64_t reserve_for(const Products&... products) {
    return reserve(static_cast<int64_t>(std::max({products.workspace_size_bytes()...})), 1);
  }
  uint64_t size_bytes() const { return end_; }

 private:
  uint64_t end_ = 0;
};

// ---- Parts of a launch --------------------------------------------------------------------------

// Writes to `to` how many steps each row has, by the bounds of the lengths, and reports a length
// that is out of range and may not be.
bp_status launch_lengths(const Recurrence& s, int64_t* to, Launch& launch);

// Converts a matrix to another one of the same extents. A source without an address is 0.
bp_status launch_conversion(const ProductOperand& from, const ProductOperand& to, Launch& launch);

}  // namespace bp::cuda
