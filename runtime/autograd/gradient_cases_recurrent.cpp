// The cases of the recurrent cells and sequences.
#include <algorithm>
#include <iterator>

#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

// Takes x, h, c, weight, recurrent, and a bias, which may be missing. The weights get both signs.
Tensor lstm_of(Inputs x, Tensor* c_next) {
  return lstm_cell(x[0], x[1], x[2], x[3] - 1, x[4] - 0.8, x.size() > 5 ? x[5] : Tensor(), c_next);
}

// Takes x, h, weight, recurrent, and up to two biases.
Tensor gru_of(Inputs x, bool reset_after) {
  return gru_cell(x[0], x[1], x[2] - 1, x[3] - 0.8, x.size() > 4 ? x[4] : Tensor(),
                  x.size() > 5 ? x[5] : Tensor(), reset_after);
}

Tensor rnn_of(Inputs x, CellActivation activation) {
  return rnn_cell(x[0], x[1], x[2] - 1, x[3] - 0.8, x.size() > 4 ? x[4] : Tensor(), activation);
}

// The sequences take what the cells take, with an x of (steps, rows, inputs).
struct Steps {
  bool has_lengths, is_reverse;

  // Two rows have 3 steps and 1 step, of 3.
  Tensor lengths() const {
    return has_lengths ? from_host(std::vector<int64_t>{3, 1}, {2}) : Tensor();
  }
};

constexpr Steps kAll{false, false}, kBack{true, true}, kSome{true, false};

Tensor lstm_over(Inputs x, Steps steps) {
  Tensor h_next, c_next;
  const Tensor y = lstm(x[0], x[1], x[2], x[3] - 1, x[4] - 0.8, x.size() > 5 ? x[5] : Tensor(),
                        steps.lengths(), steps.is_reverse, &h_next, &c_next);
  return gradient_mix({y, h_next, c_next});
}

Tensor gru_over(Inputs x, Steps steps, bool reset_after) {
  Tensor h_next;
  const Tensor y =
      gru(x[0], x[1], x[2] - 1, x[3] - 0.8, x.size() > 4 ? x[4] : Tensor(),
          x.size() > 5 ? x[5] : Tensor(), steps.lengths(), reset_after, steps.is_reverse, &h_next);
  return gradient_mix({y, h_next});
}

Tensor rnn_over(Inputs x, Steps steps, CellActivation activation) {
  Tensor h_next;
  const Tensor y = rnn(x[0], x[1], x[2] - 1, x[3] - 0.8, x.size() > 4 ? x[4] : Tensor(),
                       steps.lengths(), activation, steps.is_reverse, &h_next);
  return gradient_mix({y, h_next});
}

std::vector<GradientCase> sequence_gradient_cases() {
  return {
      {"lstm",
       {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}},
       [](Inputs x) { return lstm_over(x, kAll); },
       true},
      {"lstm, backwards in rows of different lengths",
       {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}},
       [](Inputs x) { return lstm_over(x, kBack); },
       true},
      {"lstm, the last state alone",
       {{3, 2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}},
       [](Inputs x) {
         Tensor h_next;
         lstm(x[0], x[1], x[2], x[3] - 1, x[4] - 0.8, {}, {}, false, &h_next);
         return h_next;
       },
       true},
      {"gru",
       {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}},
       [](Inputs x) { return gru_over(x, kAll, true); },
       true},
      {"gru, reset before the product",
       {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}},
       [](Inputs x) { return gru_over(x, kSome, false); },
       true},
      {"gru, backwards in rows of different lengths",
       {{3, 2, 3}, {2, 2}, {6, 3}, {6, 2}},
       [](Inputs x) { return gru_over(x, kBack, true); },
       true},
      {"rnn",
       {{3, 2, 3}, {2, 2}, {2, 3}, {2, 2}, {2}},
       [](Inputs x) { return rnn_over(x, kAll, CellActivation::kTanh); },
       true},
      {"rnn, relu backwards in rows of different lengths",
       {{3, 2, 3}, {2, 2}, {2, 3}, {2, 2}},
       [](Inputs x) { return rnn_over(x, kBack, CellActivation::kRelu); },
       true},
  };
}

}  // namespace

std::vector<GradientCase> recurrent_gradient_cases() {
  std::vector<GradientCase> cases = {
      {"lstm_cell",
       {{2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}, {8}},
       [](Inputs x) {
         Tensor c_next;
         const Tensor y = lstm_of(x, &c_next);
         return gradient_mix({y, c_next});
       }},
      {"lstm_cell, without bias and next state",
       {{2, 3}, {2, 2}, {2, 2}, {8, 3}, {8, 2}},
       [](Inputs x) { return lstm_of(x, nullptr); }},
      {"gru_cell",
       {{2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}},
       [](Inputs x) { return gru_of(x, true); }},
      {"gru_cell, reset before the product",
       {{2, 3}, {2, 2}, {6, 3}, {6, 2}, {6}, {6}},
       [](Inputs x) { return gru_of(x, false); }},
      {"gru_cell, without bias",
       {{2, 3}, {2, 2}, {6, 3}, {6, 2}},
       [](Inputs x) { return gru_of(x, true); }},
      {"rnn_cell",
       {{2, 3}, {2, 2}, {2, 3}, {2, 2}, {2}},
       [](Inputs x) { return rnn_of(x, CellActivation::kTanh); }},
      {"rnn_cell, relu without bias",
       {{2, 3}, {2, 2}, {2, 3}, {2, 2}},
       [](Inputs x) { return rnn_of(x, CellActivation::kRelu); }},
  };
  std::ranges::move(sequence_gradient_cases(), std::back_inserter(cases));
  return cases;
}

}  // namespace bp
