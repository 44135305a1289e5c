// The cases of the recurrent cells.
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

}  // namespace

std::vector<GradientCase> recurrent_gradient_cases() {
  return {
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
}

}  // namespace bp
