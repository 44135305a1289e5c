// The ops lstm, gru and rnn, and their gradients (recurrent.hpp).
#include <functional>

#include "backends/cuda/kernels/groups.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/movement.hpp"
#include "backends/cuda/kernels/recurrent.cuh"

namespace bp::cuda {
namespace {

// ---- The ops ------------------------------------------------------------------------------------

// Returns NULL, or why the launches do not take these extents: 32 bits count the elements of a
// step, and the tiles of a product.
bp_reason extents_reason(const Recurrence& r) {
  constexpr int64_t kMostRows = int64_t{1} << 31, kMostElements = int64_t{1} << 40;
  if (std::max({r.rows, r.inputs, r.hidden}) > kMaxLaunchElements || r.steps > kMostRows) {
    return "an axis is longer than 2^30, or there are more than 2^31 steps";
  }
  if (r.rows * r.width() > kMaxLaunchElements) return "a step has more than 2^30 sums";
  if (r.rows * r.inputs > kMaxLaunchElements) return "a step of x has more than 2^30 elements";
  if (r.steps * r.rows > kMostRows) return "all steps have more than 2^31 rows";
  for (const bp_tensor* tensor : {r.x, r.y, r.weight, r.recurrent}) {
    if (element_count(*tensor) > kMostElements) return "a tensor has more than 2^40 elements";
  }
  return nullptr;
}

template <typename Args>
struct SequenceKernel {
  static bp_reason supports(const Args& args) {
    return extents_reason(sequence_of(args, std::identity()));
  }

  static uint64_t workspace(const Args& args, const Env& env) {
    return sequence_workspace_bytes(sequence_of(args, std::identity()), env);
  }

  static bp_status launch(const Args& args, Launch& launch) {
    if (const bp_reason reason = supports(args)) return launch.refuse(BP_UNSUPPORTED, reason);
    return launch_sequence(sequence_of(args, std::identity()), launch);
  }
};

template <typename Args>
constexpr bp_kernel sequence_kernel(const char* name, uint32_t op, DtypeRows dtypes,
                                    const bp_numerics* numerics = nullptr) {
  using Kernel = SequenceKernel<Args>;
  bp_kernel row = kernel_row(name, op, dtypes);
  row.numerics = numerics;
  return make_kernel<Args, Kernel::launch, Kernel::supports, library_workspace<Args, Kernel>>(row);
}

constexpr bp_dtype kWideFloats[] = {BP_F32, BP_F64}, kNarrowFloats[] = {BP_F16, BP_BF16};
constexpr auto kAll = with_indices(kFloatDtypes);
constexpr auto kWide = with_indices(kWideFloats), kNarrow = with_indices(kNarrowFloats);

// A sequence of f32 or f64.
template <typename Args>
constexpr bp_kernel wide_kernel(const char* name, uint32_t op) {
  return sequence_kernel<Args>(name, op, {kWide, 2});
}
// A sequence of f16 or bf16, whose products cuBLASLt makes on tensor cores.
template <typename Args>
constexpr bp_kernel narrow_kernel(const char* name, uint32_t op) {
  return sequence_kernel<Args>(name, op, {kNarrow, 2}, &kTensorCoreNumerics);
}
// A gradient, whose products have factors in f32 or f64.
template <typename Args>
constexpr bp_kernel gradient_kernel(const char* name, uint32_t op) {
  return sequence_kernel<Args>(name, op, {kAll, 2});
}

// ---- Lengths ------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kBlockThreads)
    lengths_kernel(IndexView lengths, Bounds bounds, int64_t rows, int64_t* to, Reporter reporter) {
  const int64_t row = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (row >= rows) return;
  const int64_t length = bounds.acting(lengths.at(row));
  const bool is_known = bounds.contains(length);
  if (!is_known) report(reporter, length, lengths.place(row));
  to[row] = is_known ? length : 0;
}

}  // namespace

bp_status launch_lengths(const Recurrence& s, int64_t* to, Launch& launch) {
  if (s.lengths == nullptr || s.rows == 0) return BP_OK;
  const Bounds bounds{s.steps + 1, s.bounds};
  return run<lengths_kernel>(launch, blocks_for(s.rows, kBlockThreads), kBlockThreads, 0,
                             index_view(*s.lengths), bounds, s.rows, to,
                             launch.reporter(*s.lengths, "lengths", bounds.extent));
}

bp_status launch_conversion(const ProductOperand& from, const ProductOperand& to, Launch& launch) {
  const int64_t shape[] = {to.rows, to.cols};
  const int64_t to_strides[] = {to.row_stride, to.col_stride};
  const int64_t from_strides[] = {from.row_stride, from.col_stride};
  const int64_t size_bytes = dtype_size_bytes(to.dtype);
  if (from.address == nullptr) {
    return submit_copy(launch, make_loop(2, shape, {{to.address, to_strides, size_bytes}, {}}),
                       size_bytes);
  }
  const Loop loop = make_loop(2, shape,
                              {{to.address, to_strides, size_bytes},
                               {from.address, from_strides, dtype_size_bytes(from.dtype)}});
  return submit_cast(launch, loop, from.dtype, to.dtype);
}

SequenceView view_of(const bp_tensor* tensor) {
  SequenceView view;
  if (tensor == nullptr) return view;
  view.data = data<std::byte>(*tensor);
  std::copy_n(tensor->strides, tensor->ndim, view.strides + (3 - tensor->ndim));
  return view;
}

constinit const bp_kernel kLstm = wide_kernel<bp_lstm_args>("lstm", BP_OP_LSTM);
constinit const bp_kernel kLstmNarrow = narrow_kernel<bp_lstm_args>("lstm.narrow", BP_OP_LSTM);
constinit const bp_kernel kLstmBackward =
    gradient_kernel<bp_lstm_backward_args>("lstm_backward", BP_OP_LSTM_BACKWARD);
constinit const bp_kernel kGru = wide_kernel<bp_gru_args>("gru", BP_OP_GRU);
constinit const bp_kernel kGruNarrow = narrow_kernel<bp_gru_args>("gru.narrow", BP_OP_GRU);
constinit const bp_kernel kGruBackward =
    gradient_kernel<bp_gru_backward_args>("gru_backward", BP_OP_GRU_BACKWARD);
constinit const bp_kernel kRnn = wide_kernel<bp_rnn_args>("rnn", BP_OP_RNN);
constinit const bp_kernel kRnnNarrow = narrow_kernel<bp_rnn_args>("rnn.narrow", BP_OP_RNN);
constinit const bp_kernel kRnnBackward =
    gradient_kernel<bp_rnn_backward_args>("rnn_backward", BP_OP_RNN_BACKWARD);

}  // namespace bp::cuda
