// lstm, gru, rnn and their gradients (recurrent_forward.cpp, recurrent_backward.cpp).
#include "backends/host_kernels/recurrent.hpp"

#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {
namespace {

// Sums of this many elements stay in a last-level cache, beside the packed weights.
constexpr int64_t kSumsAtOnce = 1 << 19;

View optional_view(const bp_tensor* tensor) {
  return tensor == nullptr ? View() : view_of(*tensor);
}

template <typename Args>
Recurrence recurrence_of(const char* op, Cell cell, const Args& args) {
  Recurrence r;
  r.op = op;
  r.cell = cell;
  r.dtype = args.x->dtype;
  r.steps = args.x->shape[0];
  r.rows = args.x->shape[1];
  r.inputs = args.x->shape[2];
  r.hidden = args.h->shape[1];
  r.is_reverse = args.is_reverse != 0;
  r.x = view_of(*args.x);
  r.h = view_of(*args.h);
  r.weight = view_of(*args.weight);
  r.recurrent = view_of(*args.recurrent);
  r.y = view_of(*args.y);
  if constexpr (requires { args.gates; }) r.gates = optional_view(args.gates);
  if (args.lengths != nullptr) {
    r.lengths = {view_of(*args.lengths), args.lengths->dtype == BP_I64};
    r.length_bounds = Bounds(r.steps + 1, args.bounds);
  }
  return r;
}

template <typename Args>
SequenceForward forward_of(const char* op, Cell cell, const Args& args) {
  SequenceForward s{recurrence_of(op, cell, args), {}, {}, {}, {}, {}};
  s.bias = optional_view(args.bias);
  s.h_next = optional_view(args.h_next);
  if constexpr (requires { args.recurrent_bias; }) {
    s.recurrent_bias = optional_view(args.recurrent_bias);
  }
  if constexpr (requires { args.c; }) {
    s.c = view_of(*args.c);
    s.c_next = optional_view(args.c_next);
  }
  return s;
}

template <typename Args>
SequenceBackward backward_of(const char* op, Cell cell, const Args& args) {
  SequenceBackward s{recurrence_of(op, cell, args), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  s.grad_y = view_of(*args.grad_y);
  s.grad_h_next = optional_view(args.grad_h_next);
  s.grad_h = view_of(*args.grad_h);
  s.grad_x = optional_view(args.grad_x);
  s.grad_weight = optional_view(args.grad_weight);
  s.grad_recurrent = optional_view(args.grad_recurrent);
  s.grad_bias = optional_view(args.grad_bias);
  if constexpr (requires { args.grad_recurrent_bias; }) {
    s.grad_recurrent_bias = optional_view(args.grad_recurrent_bias);
  }
  if constexpr (requires { args.grad_c; }) {
    s.grad_c_next = optional_view(args.grad_c_next);
    s.grad_c = optional_view(args.grad_c);
  }
  return s;
}

// ---- The ops ---------------------------------------------------------------------------------

SequenceForward sequence_of(const bp_lstm_args& args) {
  return forward_of("lstm", Cell::kLstmCell, args);
}
SequenceBackward sequence_of(const bp_lstm_backward_args& args) {
  return backward_of("lstm_backward", Cell::kLstmCell, args);
}
SequenceForward sequence_of(const bp_gru_args& args) {
  return forward_of("gru", args.reset_after != 0 ? Cell::kResetAfter : Cell::kResetBefore, args);
}
SequenceBackward sequence_of(const bp_gru_backward_args& args) {
  return backward_of("gru_backward", args.reset_after != 0 ? Cell::kResetAfter : Cell::kResetBefore,
                     args);
}
SequenceForward sequence_of(const bp_rnn_args& args) {
  const bool is_relu = args.activation == BP_RNN_ACTIVATION_RELU;
  return forward_of("rnn", is_relu ? Cell::kReluCell : Cell::kTanhCell, args);
}
SequenceBackward sequence_of(const bp_rnn_backward_args& args) {
  const bool is_relu = args.activation == BP_RNN_BACKWARD_ACTIVATION_RELU;
  return backward_of("rnn_backward", is_relu ? Cell::kReluCell : Cell::kTanhCell, args);
}

template <typename Args>
uint64_t sequence_workspace(const Args& args, const Env& env) {
  return workspace_size_bytes(sequence_of(args), env.thread_count());
}

template <typename Args>
bp_status sequence_launch(const Args& args, Launch& launch) {
  return launch.submit([s = sequence_of(args), workspace = launch.workspace(),
                        threads = launch.thread_count()] { run_sequence(s, workspace, threads); });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

template <typename Args>
constexpr bp_kernel sequence_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, sequence_launch<Args>, nullptr, sequence_workspace<Args>>(
      kernel_row(name, op, {kDtypes, 2}));
}

}  // namespace

void read_lengths(const Recurrence& r, int64_t* lengths) {
  for (int64_t row = 0; row < r.rows; ++row) {
    lengths[row] = r.has_lengths() ? r.length_bounds.acting(r.lengths.at(row)) : r.steps;
    if (!r.has_lengths() || r.length_bounds.contains(lengths[row])) continue;
    throw StatusError(BP_DATA_FAILURE,
                      bad_index_text(r.op, "lengths", row, lengths[row], r.length_bounds.extent));
  }
}

int64_t steps_at_once(const Recurrence& r) {
  const int64_t of_one = std::max<int64_t>(1, r.rows * r.width());
  return std::clamp<int64_t>(kSumsAtOnce / of_one, 1, std::max<int64_t>(1, r.steps));
}

Matrix matrix_of(const View& view, bp_dtype dtype) {
  return {view.address, dtype, view.shape[0], view.shape[1], view.strides[0], view.strides[1]};
}

extern constinit const bp_kernel kLstm = sequence_kernel<bp_lstm_args>("lstm", BP_OP_LSTM);
extern constinit const bp_kernel kLstmBackward =
    sequence_kernel<bp_lstm_backward_args>("lstm_backward", BP_OP_LSTM_BACKWARD);
extern constinit const bp_kernel kGru = sequence_kernel<bp_gru_args>("gru", BP_OP_GRU);
extern constinit const bp_kernel kGruBackward =
    sequence_kernel<bp_gru_backward_args>("gru_backward", BP_OP_GRU_BACKWARD);
extern constinit const bp_kernel kRnn = sequence_kernel<bp_rnn_args>("rnn", BP_OP_RNN);
extern constinit const bp_kernel kRnnBackward =
    sequence_kernel<bp_rnn_backward_args>("rnn_backward", BP_OP_RNN_BACKWARD);

}  // namespace bp::kernels
