// Tests attention against values worked out by hand, gradients against differences, and closed
// bounds against propagated ones.
#include "conformance/reference/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/philox.hpp"

namespace bp::conformance::reference {
namespace {

Array<double> random(Shape shape, uint32_t which) {
  Array<double> result(std::move(shape));
  for (int64_t i = 0; i < result.size(); ++i) {
    const auto bits = element_bits(9, which, static_cast<uint64_t>(i));
    result[i] = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  }
  return result;
}

Attention<double> grouped() {
  Attention<double> a{random({2, 4, 3, 5}, 0), random({2, 2, 4, 5}, 1), random({2, 2, 4, 2}, 2),
                      std::nullopt, random({2, 4, 3, 4}, 3)};
  a.scale = 0.7;
  return a;
}

TEST(Attention, WeighsTheValuesOfTheKeysThatAQuerySees) {
  Attention<double> a{Array<double>(Shape{1, 1, 2, 1}), Array<double>(Shape{1, 1, 3, 1}),
                      Array<double>(Shape{1, 1, 3, 1}), std::nullopt, std::nullopt};
  a.q.data = {1, 2};
  a.k.data = {0, std::log(3.0), 5};
  a.v.data = {4, 8, 100};
  a.causal = Causal::kBottomRight;  // Query 0 sees two keys, and query 1 sees all three.
  EXPECT_EQ(a.seen_keys(0), (std::vector<int64_t>{0, 1}));
  const Attended<double> result = sdpa(a);
  EXPECT_NEAR(result.y[0], 7, 1e-14);  // The weights are 1/4 and 3/4.
  EXPECT_NEAR(result.lse[0], std::log(4.0), 1e-15);
  a.mask = Array<int64_t>(Shape{1, 1, 2, 3});
  (*a.mask).data = {0, 0, 1, 0, 1, 0};
  const Attended<double> masked = sdpa(a);
  EXPECT_EQ(masked.y.data, (std::vector<double>{0, 8}));
  EXPECT_EQ(masked.lse[0], -HUGE_VAL);
}

TEST(Attention, HeadsShareKeysInGroups) {
  const Attention<double> a = grouped();
  EXPECT_EQ(a.key_row(0, 1), 1);  // Batch 0, heads 0 and 1 read key head 0.
  EXPECT_EQ(a.key_row(1 * 3, 1), 1);
  EXPECT_EQ(a.key_row(2 * 3, 1), 4 + 1);  // Head 2 reads key head 1.
  EXPECT_EQ(a.key_row(4 * 3, 0), 8);      // The row is in batch 1.
}

TEST(Attention, AWindowCountsTheKeyOnTheDiagonal) {
  Attention<double> a{Array<double>(Shape{1, 1, 3, 1}), Array<double>(Shape{1, 1, 5, 1}),
                      Array<double>(Shape{1, 1, 5, 1}), std::nullopt, std::nullopt};
  using Keys = std::vector<int64_t>;
  a.causal = Causal::kTopLeft;
  EXPECT_EQ(a.seen_keys(1), (Keys{0, 1}));
  a.window_left = 1;
  EXPECT_EQ(a.seen_keys(1), Keys{1});
  a.causal = Causal::kBottomRight;
  EXPECT_EQ(a.seen_keys(1), Keys{3});
  a.causal = Causal::kNone;
  a.window_left = 3;
  a.window_right = 2;
  EXPECT_EQ(a.seen_keys(1), (Keys{1, 2, 3, 4}));
  EXPECT_EQ(a.seen_keys(0), (Keys{0, 1, 2, 3}));
}

TEST(Attention, ASinkTakesWeightAndHasNoValue) {
  Attention<double> a{Array<double>(Shape{1, 2, 1, 1}), Array<double>(Shape{1, 1, 3, 1}),
                      Array<double>(Shape{1, 1, 3, 1}), std::nullopt, std::nullopt};
  a.v.data = {4, 8, 12};  // The scores are 0.
  a.sinks = Array<double>(Shape{2});
  (*a.sinks).data = {std::log(3.0), -HUGE_VAL};
  const Attended<double> result = sdpa(a);
  EXPECT_NEAR(result.y[0], 4, 1e-14);
  EXPECT_NEAR(result.lse[0], std::log(6.0), 1e-15);
  EXPECT_NEAR(result.y[1], 8, 1e-14);
  a.mask = Array<int64_t>(Shape{1, 2, 1, 3});
  const Attended<double> blind = sdpa(a);
  EXPECT_EQ(blind.y.data, (std::vector<double>{0, 0}));
  EXPECT_EQ(blind.lse.data, (std::vector<double>{std::log(3.0), -HUGE_VAL}));
}

TEST(Attention, ASoftCapComesBeforeTheBias) {
  Attention<double> a = grouped();
  const double bias = (*a.bias)[1], product = a.score(0, 1) - bias;
  a.softcap = 0.3;
  EXPECT_NEAR(a.score(0, 1), 0.3 * std::tanh(product / 0.3) + bias, 1e-15);
}

TEST(Attention, GradientsAreTheSlopes) {
  constexpr double kStep = 1e-6;
  for (const bool has_all : {false, true}) {
    Attention<double> a = grouped();
    if (has_all) {
      a.causal = Causal::kBottomRight;
      a.window_left = 3;
      a.softcap = 0.8;
      a.sinks = random({4}, 8);
      a.dropout_p = 0.3;
      a.random = {11, 3};
    }
    const Array<double> grad_y = random({2, 4, 3, 2}, 4);
    const auto loss = [&] {
      const Array<double> y = sdpa(a).y;
      double total = 0;
      for (int64_t i = 0; i < y.size(); ++i) total += y[i] * grad_y[i];
      return total;
    };
    const Attended<double> saved = sdpa(a);
    const auto grads = sdpa_backward(a, grad_y, saved.y, saved.lse);
    const auto expect_slopes = [&](Array<double>& x, const Array<double>& gradient) {
      for (int64_t i = 0; i < x.size(); ++i) {
        const double value = x[i];
        x[i] = value + kStep;
        const double above = loss();
        x[i] = value - kStep;
        EXPECT_NEAR(gradient[i], (above - loss()) / (2 * kStep), 1e-8) << i;
        x[i] = value;
      }
    };
    expect_slopes(a.q, grads.q);
    expect_slopes(a.k, grads.k);
    expect_slopes(a.v, grads.v);
    if (has_all) expect_slopes(*a.sinks, grads.sinks);
  }
}

Array<Bounded<24>> as_bounded(const Array<double>& from) {
  Array<Bounded<24>> result(from.shape);
  for (int64_t i = 0; i < from.size(); ++i) result[i] = Bounded<24>(from[i]);
  return result;
}

TEST(Attention, ClosedBoundsAgreeWithPropagatedOnes) {
  for (const int64_t keys : {5, 33, 257}) {
    const Attention<double> a{random({1, 1, 1, 16}, 5),
                              random({1, 1, keys, 16}, 6),
                              random({1, 1, keys, 1}, 7),
                              std::nullopt,
                              std::nullopt,
                              0.25};
    const Attention<Bounded<24>> bounded{as_bounded(a.q), as_bounded(a.k), as_bounded(a.v),
                                         std::nullopt,    std::nullopt,    0.25};
    const auto propagated = sdpa(bounded);
    const Attended<double> exact = sdpa(a);
    std::vector<double> scores, score_bounds;
    for (int64_t j = 0; j < keys; ++j) {
      scores.push_back(a.score(0, j));
      score_bounds.push_back(bounded.score(0, j).error);
    }
    const AttentionBounds closed = attention_bounds(scores, score_bounds, BP_F32);
    double of_y = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const auto at = static_cast<size_t>(j);
      of_y += std::exp(scores[at] - exact.lse[0]) * std::fabs(a.v[j]) * closed.relative[at];
    }
    EXPECT_LT(propagated.y[0].error, 4 * of_y) << keys;
    EXPECT_GT(propagated.y[0].error, of_y / 4) << keys;
    EXPECT_LT(propagated.lse[0].error, 4 * closed.lse) << keys;
    EXPECT_GT(propagated.lse[0].error, closed.lse / 4) << keys;
  }
}

TEST(Rope, TurnsPairsAndKeepsTheRest) {
  Array<double> x(Shape{5}), cosines(Shape{2}), sines(Shape{2});
  x.data = {1, 2, 3, 4, 5};
  cosines.data = {2, 3};
  sines.data = {10, 20};
  EXPECT_EQ(rope(x, cosines, sines, false, false).data,
            (std::vector<double>{2 - 30, 6 - 80, 6 + 10, 12 + 40, 5}));
  EXPECT_EQ(rope(x, cosines, sines, true, false).data,
            (std::vector<double>{2 - 20, 4 + 10, 9 - 80, 12 + 60, 5}));
  EXPECT_EQ(rope(x, cosines, sines, false, true).data,
            (std::vector<double>{2 + 30, 6 + 80, 6 - 10, 12 - 40, 5}));
}

}  // namespace
}  // namespace bp::conformance::reference
