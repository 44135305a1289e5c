// Tests the recurrent cells against values worked out by hand from their definitions.
#include "conformance/reference/recurrent.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::conformance::reference {
namespace {

Array<double> tensor(Shape shape, std::vector<double> values) {
  Array<double> result(std::move(shape));
  result.data = std::move(values);
  return result;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One row, one input and one unit: x = 2, h = 3, and a weight for each gate.
Cell<double> one_unit(std::vector<double> weight, std::vector<double> recurrent) {
  const auto gates = static_cast<int64_t>(weight.size());
  return {tensor({1, 1}, {2}),
          tensor({1, 1}, {3}),
          tensor({gates, 1}, std::move(weight)),
          tensor({gates, 1}, std::move(recurrent)),
          {},
          {}};
}

TEST(LstmCell, HasItsGatesInTheOrderOfOnnx) {
  Cell<double> cell = one_unit({0.1, 0.2, 0.3, 0.4}, {0.5, -0.6, 0.7, -0.8});
  cell.bias = tensor({4}, {1, -1, 0.5, -0.5});
  const auto next = lstm_step(cell, tensor({1, 1}, {-0.5}));
  // The gates are 0.2 + 1.5 + 1, 0.4 - 1.8 - 1, 0.6 + 2.1 + 0.5 and 0.8 - 2.4 - 0.5.
  const double c = sigmoid(3.2) * -0.5 + sigmoid(2.7) * std::tanh(-2.1);
  EXPECT_NEAR(next.c[0], c, 1e-15);
  EXPECT_NEAR(next.y[0], sigmoid(-2.4) * std::tanh(c), 1e-15);
}

TEST(GruCell, ResetsTheStateBeforeOrAfterItsProduct) {
  Cell<double> cell = one_unit({0.1, 0.2, 0.3}, {0.4, -0.5, 0.6});
  cell.bias = tensor({3}, {0.1, 0.2, 0.3});
  cell.recurrent_bias = tensor({3}, {-0.2, 0.4, 0.7});
  const double z = sigmoid(0.2 + 0.1 + 1.2 - 0.2), r = sigmoid(0.4 + 0.2 - 1.5 + 0.4);
  const double after = std::tanh(0.9 + r * (1.8 + 0.7)), before = std::tanh(0.9 + r * 1.8 + 0.7);
  EXPECT_NEAR(gru_step(cell, true).y[0], (1 - z) * after + z * 3, 1e-15);
  EXPECT_NEAR(gru_step(cell, false).y[0], (1 - z) * before + z * 3, 1e-15);
}

TEST(RnnCell, AddsInputAndState) {
  const Cell<double> cell = one_unit({0.25}, {-0.5});
  EXPECT_NEAR(rnn_step(cell, false)[0], std::tanh(-1.0), 1e-15);
  EXPECT_EQ(rnn_step(cell, true)[0], 0);
  EXPECT_EQ(rnn_step(one_unit({-0.25}, {0.5}), true)[0], 1);
}

TEST(Cells, KeepRowsAndUnitsApart) {
  const Cell<double> cell{tensor({2, 1}, {1, 2}),
                          tensor({2, 2}, {1, 0, 0, 1}),
                          tensor({2, 1}, {1, 10}),
                          tensor({2, 2}, {100, 200, 300, 400}),
                          {},
                          {}};
  EXPECT_EQ(rnn_step(cell, true).data, (std::vector<double>{101, 310, 202, 420}));
}

}  // namespace
}  // namespace bp::conformance::reference
