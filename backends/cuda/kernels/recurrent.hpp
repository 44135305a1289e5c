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
#include "backplane/shell/recurrent.hpp"

namespace bp::cuda {

// A sequence. The tensors that the call lacks are NULL.
using Recurrence = RecurrenceOf<const bp_tensor*>;
using SequenceForward = SequenceForwardOf<const bp_tensor*>;
using SequenceBackward = SequenceBackwardOf<const bp_tensor*>;

// Returns the gates whose product with the state is one: those before a reset of the state.
inline int64_t joint_width(const Recurrence& s) {
  return s.cell == Cell::kResetBefore ? 2 * s.hidden : s.width();
}

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
