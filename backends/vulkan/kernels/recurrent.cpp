// lstm, gru, rnn and their gradients (recurrent_forward.cpp, recurrent_backward.cpp).
#include "backends/vulkan/kernels/recurrent.hpp"

#include <algorithm>
#include <functional>

namespace bp::vulkan {
namespace {

// A launch keeps all of its dispatches on the host until it is submitted, and each step has two to
// four.
constexpr int64_t kMostSteps = int64_t{1} << 16;

template <typename Args>
bp_reason sequence_supports(const Args& args) {
  // Shaders count the elements of a dispatch in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto is_too_large = [](const bp_tensor& t) { return element_count(t) > kMost; };
  const int64_t steps = args.x->shape[0], rows = args.x->shape[1];
  if (steps > kMostSteps) return "there are more than 65536 steps";
  if (is_too_large(*args.x)) return "x has more than 2^31 elements";
  if (is_too_large(*args.h)) return "h has more than 2^31 elements";
  if (is_too_large(*args.y)) return "y has more than 2^31 elements";
  if (rows > kMost / std::max<int64_t>(steps, 1)) return "there are more than 2^31 rows of steps";
  if (is_too_large(*args.weight)) return "weight has more than 2^31 elements";
  return is_too_large(*args.recurrent) ? "recurrent has more than 2^31 elements" : nullptr;
}

// The product of x adds the biases, so its sums cannot be cut into parts.
template <typename Args>
bp_reason forward_supports(const Args& args) {
  bool has_bias = args.bias != nullptr;
  if constexpr (requires { args.recurrent_bias; }) {
    has_bias = has_bias || args.recurrent_bias != nullptr;
  }
  if (has_bias && args.x->shape[2] > kMostOfProduct) return "x has more than 65536 inputs";
  return sequence_supports(args);
}

template <typename Args>
bp_reason supports(const Args& args) {
  if constexpr (requires { args.bias; }) {
    return forward_supports(args);
  } else {
    return sequence_supports(args);
  }
}

template <typename Args>
uint64_t workspace_of(const Args& args, const Env& env) {
  return sequence_workspace(sequence_of(args, std::identity()), env);
}

template <typename Args>
bp_status sequence_launch(const Args& args, Launch& launch) {
  if (const bp_reason reason = supports(args)) return launch.refuse(BP_UNSUPPORTED, reason);
  return submit_sequence(sequence_of(args, std::identity()), launch);
}

constexpr auto kDtypes = with_indices(kF32Dtypes);

template <typename Args>
constexpr bp_kernel sequence_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, sequence_launch<Args>, supports<Args>, workspace_of<Args>>(
      kernel_row(name, op, {kDtypes, 2}));
}

Matrix matrix_of(const Launch* launch, const Part& part) {
  const bp_tensor& t = *part.tensor;
  Matrix m{.tensor = &t,
           .dtype = t.dtype,
           .row_stride = part.row_stride,
           .col_stride = part.col_stride,
           .batch_strides = {part.batch_stride}};
  if (launch == nullptr || element_count(t) == 0) return m;
  m.address =
      launch->device_address(t) + static_cast<uint64_t>(part.first * dtype_size_bytes(t.dtype));
  return m;
}

}  // namespace

Product make_product(const Launch* launch, const ProductExtents& extents, const Part& a,
                     const Part& b, const Part& y) {
  Product p{.m = extents.m,
            .n = extents.n,
            .k = extents.k,
            .a = matrix_of(launch, a),
            .b = matrix_of(launch, b),
            .y = matrix_of(launch, y)};
  if (extents.batches == 1) return p;
  p.batch_ndim = 1;
  p.batch_shape = {extents.batches};
  return p;
}

StepRows::StepRows(const bp_tensor& t)
    : is_even(t.shape[0] <= 1 || t.shape[1] == 1 || t.strides[0] == t.shape[1] * t.strides[1]),
      rows(t.shape[1]),
      row_stride(t.shape[1] == 1 ? t.strides[0] : t.strides[1]) {}

StepElements elements_of(const Launch& launch, const bp_tensor* t, int64_t step) {
  StepElements elements{address_of(launch, t), 0, 0};
  if (elements.address == 0) return elements;
  const int64_t item = dtype_size_bytes(t->dtype);
  elements.unit = t->strides[t->ndim - 1] * item;
  if (t->ndim > 1) elements.row = t->strides[t->ndim - 2] * item;
  if (t->ndim > 2) elements.address += static_cast<uint64_t>(step * t->strides[0] * item);
  return elements;
}

uint64_t address_at(const Launch& launch, const ScratchTensor& buffer, int64_t first) {
  const bp_tensor& t = buffer.tensor();
  if (element_count(t) == 0) return 0;
  return launch.device_address(t) + static_cast<uint64_t>(first * dtype_size_bytes(t.dtype));
}

constinit const bp_kernel kLstm = sequence_kernel<bp_lstm_args>("lstm", BP_OP_LSTM);
constinit const bp_kernel kLstmBackward =
    sequence_kernel<bp_lstm_backward_args>("lstm_backward", BP_OP_LSTM_BACKWARD);
constinit const bp_kernel kGru = sequence_kernel<bp_gru_args>("gru", BP_OP_GRU);
constinit const bp_kernel kGruBackward =
    sequence_kernel<bp_gru_backward_args>("gru_backward", BP_OP_GRU_BACKWARD);
constinit const bp_kernel kRnn = sequence_kernel<bp_rnn_args>("rnn", BP_OP_RNN);
constinit const bp_kernel kRnnBackward =
    sequence_kernel<bp_rnn_backward_args>("rnn_backward", BP_OP_RNN_BACKWARD);

}  // namespace bp::vulkan
