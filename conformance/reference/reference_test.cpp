// Tests the oracles against values that were worked out by hand, and gradients against differences.
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/numerics/double_double.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/reference/convolution.hpp"
#include "conformance/reference/element_loss.hpp"
#include "conformance/reference/embedding.hpp"
#include "conformance/reference/loss.hpp"
#include "conformance/reference/matrix.hpp"
#include "conformance/reference/optimizer.hpp"
#include "conformance/reference/pooling.hpp"
#include "conformance/reference/random.hpp"
#include "conformance/reference/variance.hpp"

namespace bp::conformance::reference {
namespace {

Array<double> tensor(Shape shape, std::vector<double> values) {
  Array<double> result(std::move(shape));
  result.data = std::move(values);
  return result;
}

Array<double> random(Shape shape, uint32_t which) {
  Array<double> result(std::move(shape));
  for (int64_t i = 0; i < result.size(); ++i) {
    const auto bits = element_bits(9, which, static_cast<uint64_t>(i));
    result[i] = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  }
  return result;
}

double dot(const Array<double>& a, const Array<double>& b) {
  double total = 0;
  for (int64_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// Returns differences of `f` along each element of `x`, where f is smooth.
template <typename F>
void expect_gradient(const Array<double>& x, const Array<double>& gradient, F f) {
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < x.size(); ++i) {
    Array<double> above = x, below = x;
    above[i] += kStep;
    below[i] -= kStep;
    EXPECT_NEAR(gradient[i], (f(above) - f(below)) / (2 * kStep), 1e-6) << i;
  }
}

TEST(Reference, MatmulMultipliesRowsByColumns) {
  const Array<double> y =
      matmul(tensor({2, 3}, {1, 2, 3, 4, 5, 6}), tensor({3, 2}, {7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(y.shape, (Shape{2, 2}));
  EXPECT_EQ(y.data, (std::vector<double>{58, 64, 139, 154}));
}

TEST(Reference, MatmulKeepsBatchesApart) {
  const Array<double> y = matmul(tensor({2, 1, 2}, {1, 2, 3, 4}), tensor({2, 2, 1}, {5, 6, 7, 8}));
  EXPECT_EQ(y.data, (std::vector<double>{17, 53}));
}

TEST(Reference, LinearAddsTheBias) {
  const Array<double> bias = tensor({2}, {100, 200});
  const Array<double> y = linear(tensor({1, 2}, {1, 2}), tensor({2, 2}, {3, 4, 5, 6}), &bias);
  EXPECT_EQ(y.data, (std::vector<double>{111, 217}));
}

TEST(Reference, ArgmaxGivesTheFirstOfEqualsAndTheFirstNan) {
  EXPECT_EQ(argmax(tensor({4}, {1, 3, 3, 2}), 0, false)[0], 1);
  EXPECT_EQ(argmax(tensor({4}, {1, std::nan(""), 3, std::nan("")}), 0, false)[0], 1);
  EXPECT_EQ(argmax(tensor({2, 2}, {1, 2, 4, 3}), 0, false).data, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(argmin(tensor({4}, {2, 1, 1, 3}), 0, false)[0], 1);
  EXPECT_EQ(argmin(tensor({4}, {1, std::nan(""), 3, std::nan("")}), 0, false)[0], 1);
}

TEST(Reference, VarianceIsThatOfTheElementsOrOfTheirPopulation) {
  const Array<double> x = tensor({2, 2}, {1, 3, 5, 11});
  EXPECT_EQ(variance(x, {1}, false, 0).data, (std::vector<double>{1, 9}));
  EXPECT_EQ(variance(x, {1}, true, 1).data, (std::vector<double>{2, 18}));
  EXPECT_TRUE(std::isnan(variance(x, {}, false, 1)[0]));
}

ConvolutionGeometry geometry() {
  ConvolutionGeometry g;
  g.window = {{3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2}};
  g.groups = 2;
  g.x = {2, 4, 5, 6};
  g.weight = {4, 2, 3, 2};
  g.y = {2, 4};
  for (const int64_t extent : g.window.output(g.spatial())) g.y.push_back(extent);
  return g;
}

TEST(Reference, ConvolutionOfOnesCountsTheTaps) {
  ConvolutionGeometry g;
  g.window = {{3}, {1}, {1, 1}, {1}};
  g.x = {1, 1, 4}, g.weight = {1, 1, 3}, g.y = {1, 1, 4};
  const Array<double> y =
      convolution<double>(g, tensor(g.x, {1, 1, 1, 1}), tensor(g.weight, {1, 1, 1}), nullptr);
  EXPECT_EQ(y.data, (std::vector<double>{2, 3, 3, 2}));
  const Array<double> z =
      convolution<double>(g, tensor(g.x, {1, 2, 3, 4}), tensor(g.weight, {1, 10, 100}), nullptr);
  EXPECT_EQ(z.data, (std::vector<double>{210, 321, 432, 43}));  // The kernel is not flipped.
}

// <v, conv(x, w)> is linear in x and in w, so its gradients are the backward ops.
TEST(Reference, ConvolutionGradientsAreAdjoint) {
  const ConvolutionGeometry g = geometry();
  const Array<double> x = random(g.x, 0), w = random(g.weight, 1), v = random(g.y, 2);
  const double forward = dot(v, convolution<double>(g, x, w, nullptr));
  EXPECT_NEAR(dot(convolution_backward_input(g, v, w), x), forward, 1e-12);
  EXPECT_NEAR(dot(convolution_backward_weight(g, v, x), w), forward, 1e-12);
  const Array<double> bias = tensor({4}, {1, -2, 3, 0.5});
  const double with_bias = dot(v, convolution<double>(g, x, w, &bias));
  EXPECT_NEAR(dot(convolution_backward_bias(v), bias), with_bias - forward, 1e-12);
}

TEST(Reference, LossesOfElementsAreTheirDefinitions) {
  EXPECT_EQ(squared_loss(3.0, 1.0), 4);
  EXPECT_EQ(absolute_loss(1.0, 3.0), 2);
  EXPECT_EQ(huber_loss(1.0, 3.0, 4), 2);    // Half of the square.
  EXPECT_EQ(huber_loss(1.0, 3.0, 1), 1.5);  // 1 * (2 - 1 / 2).
  EXPECT_EQ(smooth_absolute_loss(1.0, 3.0, 4), 0.5);
  EXPECT_EQ(smooth_absolute_loss(1.0, 3.0, 0.5), 1.75);
  EXPECT_NEAR(binary_loss(2.0, 0.25, 3.0),
              0.75 * std::log(1 + std::exp(-2)) + 0.75 * std::log(1 + std::exp(2)), 1e-15);
  EXPECT_NEAR(divergence(-1.0, 0.5), 0.5 * (std::log(0.5) + 1), 1e-16);
  EXPECT_EQ(divergence(-HUGE_VAL, 0.0), 0);
}

TEST(Reference, LossesAreReducedOverWhatCounts) {
  const Array<double> x = tensor({3, 2}, {-1, -2, -3, -4, -5, -6});
  Array<int64_t> target({3});
  target.data = {1, -100, 0};
  EXPECT_EQ(nll_loss(x, target, -100, Reduction::kNone).data, (std::vector<double>{2, 0, 5}));
  EXPECT_EQ(nll_loss(x, target, -100, Reduction::kSum)[0], 7);
  EXPECT_EQ(nll_loss(x, target, -100, Reduction::kMean)[0], 3.5);
  EXPECT_EQ(reduced(x, Reduction::kMean, x.size())[0], -3.5);
}

TEST(Reference, MaxPoolGivesTheFirstLargestElement) {
  const Window window{{2}, {2}, {0, 0}, {1}};
  const auto pooled = max_pool(tensor({1, 1, 6}, {1, 5, 7, 7, std::nan(""), 9}), window);
  EXPECT_EQ(pooled.values[0], 5);
  EXPECT_EQ(pooled.indices.data, (std::vector<int64_t>{1, 2, 4}));
  EXPECT_TRUE(std::isnan(pooled.values[2]));
}

TEST(Reference, MaxPoolNeverChoosesPadding) {
  const Window window{{2}, {2}, {2, 0}, {1}};
  const auto pooled = max_pool(tensor({1, 1, 2}, {-5, -6}), window);
  EXPECT_EQ(pooled.values.data, (std::vector<double>{-HUGE_VAL, -5}));
  EXPECT_EQ(pooled.indices.data, (std::vector<int64_t>{-1, 0}));
  const auto back = max_pool_backward(tensor({1, 1, 2}, {3, 4}), pooled.indices, {2});
  EXPECT_EQ(back.data, (std::vector<double>{4, 0}));
}

TEST(Reference, SoftmaxSumsToOneWithoutOverflow) {
  const std::vector<double> row = {1000, 1001, 999};
  const auto y = softmax(std::span<const double>(row));
  EXPECT_NEAR(y[0] + y[1] + y[2], 1, 1e-15);
  EXPECT_NEAR(y[1] / y[0], std::exp(1.0), 1e-14);
  const auto z = log_softmax(std::span<const double>(row));
  EXPECT_NEAR(z[1], std::log(y[1]), 1e-14);
  EXPECT_NEAR(logsumexp(std::span<const double>(row)),
              1001 + std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-12);
}

TEST(Reference, CrossEntropyGradientIsItsDerivative) {
  Array<int64_t> target(Shape{4});
  target.data = {2, 0, -100, 1};
  const Array<double> x = random({4, 3}, 4);
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    const CrossEntropySettings settings{-100, 0.1, reduction};
    const auto loss = [&](const Array<double>& at) {
      return cross_entropy(at, target, settings).y[0];
    };
    const auto lse = cross_entropy(x, target, settings).lse;
    expect_gradient(x, cross_entropy_backward(tensor({}, {1}), x, target, lse, settings), loss);
  }
}

TEST(Reference, CrossEntropyOfAUniformRowIsTheLogOfItsClasses) {
  Array<int64_t> target(Shape{1});
  const auto losses = cross_entropy(tensor({1, 4}, {3, 3, 3, 3}), target, {});
  EXPECT_NEAR(losses.y[0], std::log(4.0), 1e-15);
}

TEST(Reference, EmbeddingPicksRowsAndItsGradientAddsThem) {
  Array<int64_t> indices(Shape{3});
  indices.data = {1, 0, 1};
  const auto y = embedding(tensor({2, 2}, {1, 2, 3, 4}), indices);
  EXPECT_EQ(y.data, (std::vector<double>{3, 4, 1, 2, 3, 4}));
  const auto grad = embedding_backward(tensor({3, 2}, {1, 2, 3, 4, 5, 6}), indices, 3);
  EXPECT_EQ(grad.data, (std::vector<double>{3, 4, 6, 8, 0, 0}));
}

TEST(Reference, RandomNumbersComeFromTheKnownBlocks) {
  const RandomState zero;
  EXPECT_EQ(random_bits(zero, 0), 0x6627e8d5u);
  EXPECT_EQ(random_bits(zero, 3), 0x9b00dbd8u);
  EXPECT_EQ(uniform(zero, BP_F32, 0), (0x6627e8d5u >> 8) * 0x1p-24);
  EXPECT_EQ(uniform(zero, BP_F64, 0), static_cast<double>(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
  EXPECT_EQ(dropout(zero, 0, 1.0, 5.0), 0);
  EXPECT_EQ(dropout(zero, 0, 0.0, 5.0), 5);
  EXPECT_EQ(dropout(zero, 0, 0.25, 3.0), 4);  // 0x66... is 0.39 of the range.
  EXPECT_EQ(dropout(zero, 0, 0.5, 3.0), 0);
}

TEST(Reference, OptimizersFollowTheirFormulas) {
  const SgdSettings sgd{.lr = 0.1, .momentum = 0.9, .has_buffers = true, .step = 2};
  const auto moved = sgd_step<double>({1, 2}, 0.5, sgd);
  EXPECT_NEAR(moved.buffer, 2.3, 1e-15);
  EXPECT_NEAR(moved.param, 0.77, 1e-15);
  SgdSettings first = sgd;
  first.step = 1;
  EXPECT_EQ(sgd_step<double>({1, 2}, 0.5, first).buffer, 0.5);
  // In step 1 from a zero state, Adam moves by lr, whatever the gradient is.
  const AdamSettings adamw{0.01, 0.9, 0.999, 0, 0, 1};
  EXPECT_NEAR((adam_step<double>({1, 0, 0}, 123, adamw).param), 0.99, 1e-12);
}

TEST(Reference, AdamDecaysTheGradientOrTheParameter) {
  AdamSettings s{0.01, 0.9, 0.999, 0, 0.5, 1};
  // The first step is lr in the direction of the gradient, whatever its size.
  EXPECT_NEAR((adam_step<double>({2, 0, 0}, 1, s).param), 2 - 0.01 * 0.5 * 2 - 0.01, 1e-12);
  s.is_decoupled = false;
  const auto next = adam_step<double>({2, 0, 0}, 1, s);
  EXPECT_NEAR(next.param, 2 - 0.01, 1e-12);
  EXPECT_NEAR(next.average, 0.1 * (1 + 0.5 * 2), 1e-12);
}

TEST(Reference, LionMovesByTheSignOfTheMixedGradient) {
  const LionSettings s{0.125, 0.75, 0.5, 0.5};
  // 0.75 * 1 + 0.25 * -2 is above 0, and -4 in place of -2 brings it below.
  EXPECT_EQ((lion_step<double>({2, 1}, -2, s).param), 2 - 0.125 * (1 + 0.5 * 2));
  EXPECT_EQ((lion_step<double>({2, 1}, -4, s).param), 2 - 0.125 * (-1 + 0.5 * 2));
  EXPECT_EQ((lion_step<double>({2, 0}, 0, s).param), 2 - 0.125 * 0.5 * 2);
  EXPECT_EQ((lion_step<double>({2, 1}, -2, s).average), 0.5 * 1 + 0.5 * -2);
}

TEST(Reference, EuclideanNormOfAllElements) {
  const std::vector<double> elements = {3, -4, 12};
  EXPECT_EQ(euclidean_norm(std::span<const double>(elements)), 13);
}

TEST(Reference, RandomDrawsFollowTheWordsOfTheirElements) {
  const RandomState zero;  // Its first word is 0x6627e8d5, its fourth one 0x9b00dbd8.
  EXPECT_EQ(random_integer(zero, -5, 11, 0), -5 + 6);  // A sixteenth for each leading digit.
  EXPECT_EQ(random_integer(zero, 0, 256, 3), 0x9b);
  const std::vector<double> weights = {1, -3, 4, NAN, 0, 3};
  EXPECT_EQ(drawn_class(weights, 0), 0);
  EXPECT_EQ(drawn_class(weights, 0.12), 0);
  EXPECT_EQ(drawn_class(weights, 0.13), 2);
  EXPECT_EQ(drawn_class(weights, 0.62), 2);
  EXPECT_EQ(drawn_class(weights, 0.63), 5);
  EXPECT_EQ(drawn_class(weights, 0x1.fffffffffffffp-1), 5);
  EXPECT_EQ(drawn_class(std::vector<double>{0, 0, 0}, 0.5), 2);
}

TEST(Reference, PermutationSortsSignedKeysOfTwoWords) {
  const RandomState state{42, 7};
  const std::vector<int64_t> order = permutation(state, 100);
  std::vector<bool> is_found(100);
  for (size_t i = 0; i < order.size(); ++i) {
    is_found[static_cast<size_t>(order[i])] = true;
    if (i == 0) continue;
    const auto upper = [&](int64_t number) {
      return static_cast<int32_t>(random_bits(state, 2 * static_cast<uint64_t>(number) + 1));
    };
    EXPECT_LE(upper(order[i - 1]), upper(order[i]));
  }
  EXPECT_EQ(is_found, std::vector<bool>(100, true));
}

TEST(Reference, DoubleDoubleAgreesWithDouble) {
  const Array<double> a = random({3, 4}, 5), b = random({4, 2}, 6);
  Array<DoubleDouble> wide_a(a.shape), wide_b(b.shape);
  for (int64_t i = 0; i < a.size(); ++i) wide_a[i] = a[i];
  for (int64_t i = 0; i < b.size(); ++i) wide_b[i] = b[i];
  const auto narrow = matmul(a, b);
  const auto wide = matmul(wide_a, wide_b);
  for (int64_t i = 0; i < narrow.size(); ++i) EXPECT_NEAR(narrow[i], wide[i].hi, 1e-15);
}

TEST(Reference, AvgPoolDividesByWhatItCounts) {
  const Array<double> x = tensor({1, 1, 3}, {3, 6, 9});
  const Window window{{2}, {2}, {1, 0}, {1}};  // One window holds padding and 3, and the next holds
                                               // 6 and 9.
  EXPECT_EQ(avg_pool(x, window, true).data, (std::vector<double>{1.5, 7.5}));
  EXPECT_EQ(avg_pool(x, window, false).data, (std::vector<double>{3, 7.5}));
  const Window beyond{{1}, {1}, {1, 0}, {1}};
  EXPECT_EQ(avg_pool(x, beyond, false).data, (std::vector<double>{0, 3, 6, 9}));
}

TEST(Reference, AvgPoolGradientIsItsTranspose) {
  const Window window{{3, 2}, {2, 1}, {1, 0, 1, 1}, {1, 1}};
  const Array<double> x = random({2, 2, 5, 4}, 20);
  for (const bool counts_padding : {true, false}) {
    const Array<double> y = avg_pool(x, window, counts_padding);
    const Array<double> grad_y = random(y.shape, 21);
    const Array<double> grad_x = avg_pool_backward(grad_y, window, {5, 4}, counts_padding);
    EXPECT_NEAR(dot(grad_y, y), dot(grad_x, x), 1e-12);
  }
}

TEST(Reference, SoftmaxGradientsAreTheSlopes) {
  const Array<double> x = random({5}, 22), grad_y = random({5}, 23);
  const auto loss = [&](const Array<double>& at, bool is_log) {
    const std::span<const double> row(at.data);
    Array<double> y(at.shape);
    y.data = is_log ? log_softmax(row) : softmax(row);
    return dot(grad_y, y);
  };
  const std::span<const double> row(x.data), grads(grad_y.data);
  Array<double> grad_x(x.shape);
  const std::vector<double> y = softmax(row), log_y = log_softmax(row);
  grad_x.data = softmax_backward(grads, std::span<const double>(y));
  expect_gradient(x, grad_x, [&](const Array<double>& at) { return loss(at, false); });
  grad_x.data = log_softmax_backward(grads, std::span<const double>(log_y));
  expect_gradient(x, grad_x, [&](const Array<double>& at) { return loss(at, true); });
}

// A pair of numbers lies on a circle: the first uniform number gives the radius, and the second
// gives the angle.
TEST(Reference, NormalNumbersComeInPairs) {
  const RandomState state{42, 7};
  double total = 0, squares = 0;
  constexpr uint64_t kCount = 20000;
  for (uint64_t i = 0; i < kCount; i += 2) {
    const double first = normal<double>(state, BP_F32, i, 0, 1);
    const double second = normal<double>(state, BP_F32, i + 1, 0, 1);
    const double radius_squared = -2 * std::log(1 - uniform(state, BP_F32, i));
    EXPECT_NEAR(first * first + second * second, radius_squared, 1e-13);
    EXPECT_NEAR(second, first * std::tan(2 * M_PI * uniform(state, BP_F32, i + 1)),
                1e-9 * (1 + std::fabs(second)));
    total += first + second;
    squares += first * first + second * second;
  }
  EXPECT_NEAR(total / kCount, 0, 0.03);
  EXPECT_NEAR(squares / kCount, 1, 0.04);
  EXPECT_EQ(normal<double>(state, BP_F64, 5, 2.5, 0), 2.5);
}

}  // namespace
}  // namespace bp::conformance::reference
