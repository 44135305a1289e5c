// lstm, gru, rnn and their gradients (recurrent_forward.cpp, recurrent_backward.cpp).
#include "backends/host_kernels/recurrent.hpp"

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {
namespace {

// Sums of this many elements stay in a last-level cache, beside the packed weights.
constexpr int64_t kSumsAtOnce = 1 << 19;

View optional_view(const bp_tensor* tensor) {
  return tensor == nullptr ? View() : view_of(*tensor);
}

template <typename Args>
auto sequence_of(const Args& args) {
  return bp::sequence_of(args, optional_view);
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
  const IndexView given = {r.lengths, r.length_dtype == BP_I64};
  const Bounds bounds(r.steps + 1, r.bounds);
  for (int64_t row = 0; row < r.rows; ++row) {
    lengths[row] = r.has_lengths() ? bounds.acting(given.at(row)) : r.steps;
    if (!r.has_lengths() || bounds.contains(lengths[row])) continue;
    throw StatusError(BP_DATA_FAILURE,
                      bad_index_text(r.op, "lengths", row, lengths[row], bounds.extent));
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
