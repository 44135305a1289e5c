// Recurrent sequences: what kernels of lstm, gru, rnn and of their gradients read from a frame.
//
// A backend keeps a tensor of a call as what its function `make` returns for it, such as the tensor
// itself or a copy of its layout. make(NULL) stands for a tensor that the call lacks.
//
//   const auto sequence = sequence_of(args, std::identity());  // It keeps const bp_tensor*.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backplane/base.h"
#include "backplane/ops.h"
#include "backplane/tensor.h"

namespace bp {

// A GRU resets the state after its product with the weights, or before. Shaders have these numbers
// too.
enum class Cell : uint32_t {
  kLstmCell = 0,
  kResetAfter = 1,
  kResetBefore = 2,
  kTanhCell = 3,
  kReluCell = 4
};

constexpr bool is_gru(Cell cell) { return cell == Cell::kResetAfter || cell == Cell::kResetBefore; }

// Returns the gates of the weights, each of which has a row for each unit.
constexpr int64_t gate_count(Cell cell) {
  return cell == Cell::kLstmCell ? 4 : is_gru(cell) ? 3 : 1;
}

// A sequence.
template <typename Tensor>
struct RecurrenceOf {
  const char* op = "";
  Cell cell = Cell::kLstmCell;
  bp_dtype dtype = 0;
  int64_t steps = 0, rows = 0, inputs = 0, hidden = 0;
  bool is_reverse = false;
  uint32_t bounds = 0;        // Of the lengths.
  bp_dtype length_dtype = 0;  // 0 if the call has no lengths.
  Tensor x{}, h{}, weight{}, recurrent{}, y{}, gates{}, lengths{};

  bool has_lengths() const { return length_dtype != 0; }
  // Sums of f16 and bf16 are f32.
  bp_dtype sum_dtype() const { return dtype == BP_F64 ? BP_F64 : BP_F32; }
  int64_t sum_bytes() const { return dtype == BP_F64 ? 8 : 4; }
  bool is_narrow() const { return dtype != sum_dtype(); }
  int64_t width() const { return gate_count(cell) * hidden; }
  // Returns which step is number `i` to run.
  int64_t step_at(int64_t i) const { return is_reverse ? steps - 1 - i : i; }
};

template <typename Tensor>
struct SequenceForwardOf : RecurrenceOf<Tensor> {
  Tensor c{}, bias{}, recurrent_bias{}, h_next{}, c_next{};
};

template <typename Tensor>
struct SequenceBackwardOf : RecurrenceOf<Tensor> {
  Tensor grad_y{}, grad_h_next{}, grad_c_next{};
  Tensor grad_h{}, grad_c{}, grad_x{}, grad_weight{}, grad_recurrent{}, grad_bias{},
      grad_recurrent_bias{};
};

// ---- Frames -------------------------------------------------------------------------------------

// What `make` returns for a tensor.
template <typename Make>
using MadeTensor = std::decay_t<std::invoke_result_t<const Make&, const bp_tensor*>>;

template <typename Args, typename Make>
void read_recurrence(const char* op, Cell cell, const Args& args, const Make& make,
                     RecurrenceOf<MadeTensor<Make>>& out) {
  out.op = op;
  out.cell = cell;
  out.dtype = args.x->dtype;
  out.steps = args.x->shape[0];
  out.rows = args.x->shape[1];
  out.inputs = args.x->shape[2];
  out.hidden = args.h->shape[1];
  out.is_reverse = args.is_reverse != 0;
  out.bounds = args.bounds;
  if (args.lengths != nullptr) out.length_dtype = args.lengths->dtype;
  out.x = make(args.x);
  out.h = make(args.h);
  out.weight = make(args.weight);
  out.recurrent = make(args.recurrent);
  out.y = make(args.y);
  if constexpr (requires { args.gates; }) out.gates = make(args.gates);
  out.lengths = make(args.lengths);
}

template <typename Args, typename Make>
SequenceForwardOf<MadeTensor<Make>> forward_of(const char* op, Cell cell, const Args& args,
                                               const Make& make) {
  SequenceForwardOf<MadeTensor<Make>> s;
  read_recurrence(op, cell, args, make, s);
  s.bias = make(args.bias);
  s.h_next = make(args.h_next);
  if constexpr (requires { args.recurrent_bias; }) s.recurrent_bias = make(args.recurrent_bias);
  if constexpr (requires { args.c; }) {
    s.c = make(args.c);
    s.c_next = make(args.c_next);
  }
  return s;
}

template <typename Args, typename Make>
SequenceBackwardOf<MadeTensor<Make>> backward_of(const char* op, Cell cell, const Args& args,
                                                 const Make& make) {
  SequenceBackwardOf<MadeTensor<Make>> s;
  read_recurrence(op, cell, args, make, s);
  s.grad_y = make(args.grad_y);
  s.grad_h_next = make(args.grad_h_next);
  s.grad_h = make(args.grad_h);
  s.grad_x = make(args.grad_x);
  s.grad_weight = make(args.grad_weight);
  s.grad_recurrent = make(args.grad_recurrent);
  s.grad_bias = make(args.grad_bias);
  if constexpr (requires { args.grad_recurrent_bias; }) {
    s.grad_recurrent_bias = make(args.grad_recurrent_bias);
  }
  if constexpr (requires { args.grad_c; }) {
    s.grad_c_next = make(args.grad_c_next);
    s.grad_c = make(args.grad_c);
  }
  return s;
}

constexpr Cell gru_cell(bool resets_after) {
  return resets_after ? Cell::kResetAfter : Cell::kResetBefore;
}
constexpr Cell rnn_cell(bool is_relu) { return is_relu ? Cell::kReluCell : Cell::kTanhCell; }

// ---- The ops ------------------------------------------------------------------------------------

template <typename Make>
auto sequence_of(const bp_lstm_args& args, const Make& make) {
  return forward_of("lstm", Cell::kLstmCell, args, make);
}
template <typename Make>
auto sequence_of(const bp_lstm_backward_args& args, const Make& make) {
  return backward_of("lstm_backward", Cell::kLstmCell, args, make);
}
template <typename Make>
auto sequence_of(const bp_gru_args& args, const Make& make) {
  return forward_of("gru", gru_cell(args.reset_after != 0), args, make);
}
template <typename Make>
auto sequence_of(const bp_gru_backward_args& args, const Make& make) {
  return backward_of("gru_backward", gru_cell(args.reset_after != 0), args, make);
}
template <typename Make>
auto sequence_of(const bp_rnn_args& args, const Make& make) {
  return forward_of("rnn", rnn_cell(args.activation == BP_RNN_ACTIVATION_RELU), args, make);
}
template <typename Make>
auto sequence_of(const bp_rnn_backward_args& args, const Make& make) {
  const bool is_relu = args.activation == BP_RNN_BACKWARD_ACTIVATION_RELU;
  return backward_of("rnn_backward", rnn_cell(is_relu), args, make);
}

}  // namespace bp
