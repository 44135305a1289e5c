// Own kernels of ops that normalize or quantize elements, and of recurrent cells.
#include <cmath>
#include <optional>

#include "backplane/ops.h"
#include "conformance/mutants/own_kernels.hpp"
#include "conformance/reference/channel_norm.hpp"
#include "conformance/reference/quantization.hpp"

namespace bp::mutants {
namespace {

using conformance::Array;
namespace reference = conformance::reference;

using Numbers = Array<double>;

// ---- instance_norm and fake_quantize ------------------------------------------------------------

reference::Optional<double> optional_array(Inputs& inputs, const bp_tensor* tensor) {
  if (tensor == nullptr) return std::nullopt;
  return inputs.array<double>(*tensor);
}

// Wrong: the statistics are those of the batch.
template <bool kIsRight>
bp_status normalize(const Call& call, const bp_instance_norm_args& args) {
  Inputs inputs(call);
  const auto x = inputs.array<double>(*args.x);
  const auto gamma = optional_array(inputs, args.gamma), beta = optional_array(inputs, args.beta);
  if (inputs.status() != BP_OK) return inputs.status();
  const auto right = reference::group_norm(x, x.shape[1], gamma, beta, args.eps);
  bp_status status =
      write(call, *args.y,
            kIsRight ? right.y : reference::batch_norm_training(x, gamma, beta, args.eps).y);
  if (status == BP_OK && args.mean != nullptr) status = write(call, *args.mean, right.mean);
  if (status == BP_OK && args.rstd != nullptr) status = write(call, *args.rstd, right.rstd);
  return status;
}

enum class Code { kRight, kHalvesUp, kUnmoved };

// Halves up: ties are rounded up. Unmoved: the zero point does not move the range of the codes.
template <Code kCode>
bp_status quantize(const Call& call, const bp_fake_quantize_args& args) {
  Inputs inputs(call);
  const auto x = inputs.array<float>(*args.x), scale = inputs.array<float>(*args.scale);
  Numbers zero(x.shape), y(x.shape);
  if (args.zero != nullptr) zero = inputs.array<double>(*args.zero);
  if (inputs.status() != BP_OK) return inputs.status();
  const auto low = static_cast<double>(args.low), high = static_cast<double>(args.high);
  for (int64_t i = 0; i < y.size(); ++i) {
    const float steps = x[i] / scale[i];
    const double rounded_steps = kCode == Code::kHalvesUp
                                     ? std::floor(static_cast<double>(steps) + 0.5)
                                     : static_cast<double>(std::nearbyint(steps));
    const double moved = kCode == Code::kUnmoved ? 0 : zero[i];
    y[i] = reference::limited_code(rounded_steps, moved, low, high) * static_cast<double>(scale[i]);
  }
  return write(call, *args.y, y);
}

// ---- Recurrent cells ----------------------------------------------------------------------------

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The products of a cell, with rows of x and of a state.
struct Products {
  Numbers x, h, weight, recurrent;
  reference::Optional<double> bias, recurrent_bias;

  template <typename Args>
  Products(Inputs& inputs, const Args& args)
      : x(inputs.array<double>(*args.x)),
        h(inputs.array<double>(*args.h)),
        weight(inputs.array<double>(*args.weight)),
        recurrent(inputs.array<double>(*args.recurrent)),
        bias(optional_array(inputs, args.bias)) {}

  static double dot(const Numbers& a, int64_t row, const Numbers& b, int64_t column) {
    const int64_t width = a.shape[1];
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += a[row * width + k] * b[column * width + k];
    return sum;
  }
  double of_input(int64_t row, int64_t gate) const {
    return dot(x, row, weight, gate) + (bias ? (*bias)[gate] : 0);
  }
  double of_state(const Numbers& state, int64_t row, int64_t gate) const {
    return dot(state, row, recurrent, gate) + (recurrent_bias ? (*recurrent_bias)[gate] : 0);
  }
  double of_both(int64_t row, int64_t gate) const {
    return of_input(row, gate) + of_state(h, row, gate);
  }
};

// Wrong: the gates are in the order of PyTorch.
template <bool kIsRight>
bp_status step_lstm(const Call& call, const bp_lstm_cell_args& args) {
  Inputs inputs(call);
  const Products p(inputs, args);
  const auto c = inputs.array<double>(*args.c);
  if (inputs.status() != BP_OK) return inputs.status();
  constexpr int64_t kOut = kIsRight ? 1 : 3, kForget = kIsRight ? 2 : 1, kCell = kIsRight ? 3 : 2;
  Numbers y(c.shape), next(c.shape);
  const int64_t n = c.shape[1];
  for (int64_t i = 0; i < c.size(); ++i) {
    const auto gate = [&](int64_t number) { return p.of_both(i / n, number * n + i % n); };
    next[i] = sigmoid(gate(kForget)) * c[i] + sigmoid(gate(0)) * std::tanh(gate(kCell));
    y[i] = sigmoid(gate(kOut)) * std::tanh(next[i]);
  }
  const bp_status status = write(call, *args.y, y);
  return status != BP_OK || args.c_next == nullptr ? status : write(call, *args.c_next, next);
}

// Wrong: the state is reset before its product, whatever the call says.
template <bool kIsRight>
bp_status step_gru(const Call& call, const bp_gru_cell_args& args) {
  Inputs inputs(call);
  Products p(inputs, args);
  p.recurrent_bias = optional_array(inputs, args.recurrent_bias);
  if (inputs.status() != BP_OK) return inputs.status();
  const int64_t n = p.h.shape[1];
  Numbers reset(p.h.shape), kept(p.h.shape), y(p.h.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    reset[i] = sigmoid(p.of_both(i / n, n + i % n));
    kept[i] = reset[i] * p.h[i];
  }
  const bool is_after = kIsRight && args.reset_after != 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / n, gate = 2 * n + i % n;
    const double state =
        is_after ? reset[i] * p.of_state(p.h, row, gate) : p.of_state(kept, row, gate);
    const double update = sigmoid(p.of_both(row, i % n));
    y[i] = (1 - update) * std::tanh(p.of_input(row, gate) + state) + update * p.h[i];
  }
  return write(call, *args.y, y);
}

// Wrong: the activation is that of most networks, whatever the call says.
template <bool kIsRight>
bp_status step_rnn(const Call& call, const bp_rnn_cell_args& args) {
  Inputs inputs(call);
  const Products p(inputs, args);
  if (inputs.status() != BP_OK) return inputs.status();
  const bool is_relu = kIsRight && args.activation == BP_RNN_CELL_ACTIVATION_RELU;
  Numbers y(p.h.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const double sum = p.of_both(i / y.shape[1], i % y.shape[1]);
    y[i] = !is_relu ? std::tanh(sum) : sum < 0 ? 0 : sum;
  }
  return write(call, *args.y, y);
}

constexpr Mistake kRight[] = {
    {"instance_norm", BP_OP_INSTANCE_NORM, on_frame<normalize<true>>},
    {"fake_quantize", BP_OP_FAKE_QUANTIZE, on_frame<quantize<Code::kRight>>},
    {"lstm_cell", BP_OP_LSTM_CELL, on_frame<step_lstm<true>>},
    {"gru_cell", BP_OP_GRU_CELL, on_frame<step_gru<true>>},
    {"rnn_cell", BP_OP_RNN_CELL, on_frame<step_rnn<true>>},
};

constexpr Mistake kWrong[] = {
    {"instance_norm", BP_OP_INSTANCE_NORM, on_frame<normalize<false>>},
    {"fake_quantize_halves", BP_OP_FAKE_QUANTIZE, on_frame<quantize<Code::kHalvesUp>>},
    {"fake_quantize_zero", BP_OP_FAKE_QUANTIZE, on_frame<quantize<Code::kUnmoved>>},
    {"lstm_cell", BP_OP_LSTM_CELL, on_frame<step_lstm<false>>},
    {"gru_cell", BP_OP_GRU_CELL, on_frame<step_gru<false>>},
    {"rnn_cell", BP_OP_RNN_CELL, on_frame<step_rnn<false>>},
};

}  // namespace

std::span<const Mistake> right_cells() { return kRight; }
std::span<const Mistake> wrong_cells() { return kWrong; }

}  // namespace bp::mutants
