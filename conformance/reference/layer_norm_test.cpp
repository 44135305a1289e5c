// Tests norms against values worked out by hand, gradients against differences, and closed bounds
// against propagated ones.
#include "conformance/reference/layer_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/numerics/bounds.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/reference/channel_norm.hpp"

namespace bp::conformance::reference {
namespace {

Array<double> random(Shape shape, uint32_t which, double center = 0) {
  Array<double> result(std::move(shape));
  for (int64_t i = 0; i < result.size(); ++i) {
    const auto bits = element_bits(9, which, static_cast<uint64_t>(i));
    result[i] = center + static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  }
  return result;
}

double dot(const Array<double>& a, const Array<double>& b) {
  double total = 0;
  for (int64_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

TEST(Normalize, CentersAndScalesARow) {
  Array<double> x(Shape{1, 4}), gamma(Shape{4}), beta(Shape{4});
  x.data = {1, 3, 5, 7};
  gamma.data = {1, 2, 1, 1};
  beta.data = {0, 0, 10, 0};
  const auto layer = normalize<double>(x, {1}, gamma, beta, 4, Norm::kLayer);
  EXPECT_EQ(layer.mean.data, std::vector<double>{4});
  EXPECT_NEAR(layer.rstd[0], 1 / 3.0, 1e-16);  // The variance is 5, and eps is 4.
  EXPECT_NEAR(layer.y[0], -1, 1e-15);
  EXPECT_NEAR(layer.y[1], -2 / 3.0, 1e-15);
  EXPECT_NEAR(layer.y[2], 10 + 1 / 3.0, 1e-14);
  const auto rms = normalize<double>(x, {1}, std::nullopt, std::nullopt, 4, Norm::kRms);
  EXPECT_NEAR(rms.rstd[0], 0.2, 1e-16);  // The mean square is 21.
  EXPECT_NEAR(rms.y[3], 1.4, 1e-15);
}

// Two samples of two channels of two places.
Array<double> two_channels() {
  Array<double> x(Shape{2, 2, 2});
  x.data = {1, 3, 10, 20, 5, 7, 30, 40};
  return x;
}

TEST(ChannelNorm, TakesTheStatisticsOfGroupsOfASample) {
  const Array<double> x = two_channels();
  const auto one = group_norm<double>(x, 1, std::nullopt, std::nullopt, 0);
  EXPECT_EQ(one.mean.data, (std::vector<double>{8.5, 20.5}));
  EXPECT_NEAR(one.variance[0], 55.25, 1e-12);
  const auto each = group_norm<double>(x, 2, std::nullopt, std::nullopt, 0);
  EXPECT_EQ(each.mean.shape, (Shape{2, 2}));
  EXPECT_EQ(each.mean.data, (std::vector<double>{2, 15, 6, 35}));
  EXPECT_EQ(each.y.data, (std::vector<double>{-1, 1, -1, 1, -1, 1, -1, 1}));
}

TEST(ChannelNorm, TakesTheStatisticsOfAChannelOfAllSamples) {
  Array<double> gamma(Shape{2}), beta(Shape{2});
  gamma.data = {1, 2};
  beta.data = {0, 100};
  const Array<double> x = two_channels();
  const auto trained = batch_norm_training<double>(x, gamma, beta, 0);
  EXPECT_EQ(trained.mean.data, (std::vector<double>{4, 25}));
  EXPECT_EQ(trained.variance.data, (std::vector<double>{5, 125}));
  EXPECT_NEAR(trained.y[0], -3 / std::sqrt(5.0), 1e-15);
  EXPECT_NEAR(trained.y[7], 100 + 2 * 15 / std::sqrt(125.0), 1e-13);
  const auto given =
      batch_norm_inference<double>(x, trained.mean, trained.variance, gamma, beta, 0);
  for (int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR(given[i], trained.y[i], 1e-12) << i;
}

// The loss is the dot product of y with grad_y.
TEST(Normalize, GradientsAreTheSlopes) {
  constexpr double kStep = 1e-6;
  const Shape shape{3, 5}, rows{3}, weights{5};
  const Array<double> x = random(shape, 0), grad_y = random(shape, 1);
  const Array<double> gamma = random(weights, 2), beta = random(weights, 3);
  for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
    const auto loss = [&](const Array<double>& at, const Array<double>& g, const Array<double>& b) {
      return dot(grad_y, normalize<double>(at, rows, g, b, 1e-3, norm).y);
    };
    const auto saved = normalize<double>(x, rows, gamma, beta, 1e-3, norm);
    const Optional<double> mean =
        norm == Norm::kLayer ? Optional<double>(saved.mean) : std::nullopt;
    const auto grads = normalize_backward<double>(grad_y, x, gamma, mean, saved.rstd, weights);
    const auto slope = [&](Array<double> at, int64_t i, auto f) {
      at[i] += kStep;
      const double above = f(at);
      at[i] -= 2 * kStep;
      return (above - f(at)) / (2 * kStep);
    };
    for (int64_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(grads.x[i], slope(x, i, [&](const auto& a) { return loss(a, gamma, beta); }),
                  1e-7);
    }
    for (int64_t i = 0; i < gamma.size(); ++i) {
      EXPECT_NEAR(grads.gamma[i], slope(gamma, i, [&](const auto& a) { return loss(x, a, beta); }),
                  1e-8);
      EXPECT_NEAR(grads.beta[i], slope(beta, i, [&](const auto& a) { return loss(x, gamma, a); }),
                  1e-8);
    }
  }
}

Optional<Bounded<24>> as_bounded(const Array<double>& from) {
  Array<Bounded<24>> result(from.shape);
  for (int64_t i = 0; i < from.size(); ++i) result[i] = Bounded<24>(from[i]);
  return result;
}

// The test compares the largest closed and propagated bound of a row. Single elements differ by
// more if x is near its mean, because the closed formula keeps digits that the propagated one
// loses.
TEST(Normalize, ClosedBoundsAgreeWithPropagatedOnes) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
    for (const int64_t width : {8, 67, 1031}) {
      const Array<double> x = random({1, width}, 4), gamma = random({width}, 5, 2);
      const auto exact = normalize<double>(x, {1}, gamma, std::nullopt, 1e-5, norm);
      const auto bounds =
          normalize<Bounded<24>>(*as_bounded(x), {1}, as_bounded(gamma), std::nullopt, 1e-5, norm);
      NormRow row{static_cast<double>(width), 0, exact.mean[0], exact.rstd[0]};
      for (const double value : x.data) row.mean_magnitude += std::fabs(value);
      row.mean_magnitude = norm == Norm::kLayer ? row.mean_magnitude / row.count : 0;
      double closed = 0, propagated = 0;
      for (int64_t i = 0; i < width; ++i) {
        closed = std::fmax(closed, norm_bound(row, x[i], gamma[i], 0, exact.y[i], BP_F32));
        propagated = std::fmax(propagated, bounds.y[i].error);
      }
      EXPECT_LT(propagated, 4 * closed) << width;
      EXPECT_GT(propagated, closed / 4) << width;
      EXPECT_GT(bounds.rstd[0].error, norm_rstd_bound(row, BP_F32) / 4) << width;
      if (norm == Norm::kLayer) continue;  // Bounded cannot know that deviations add up to 0.
      EXPECT_LT(bounds.rstd[0].error, 4 * norm_rstd_bound(row, BP_F32)) << width;
    }
  }
}

}  // namespace
}  // namespace bp::conformance::reference
