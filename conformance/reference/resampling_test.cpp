// Tests interpolate, adaptive pooling and transposed convolution against results found by hand.
#include "conformance/reference/resampling.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/reference/convolution.hpp"
#include "conformance/reference/pooling.hpp"

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;

constexpr int64_t kNearest = BP_INTERPOLATE_MODE_NEAREST, kLinear = BP_INTERPOLATE_MODE_LINEAR;
constexpr int64_t kHalfPixel = BP_INTERPOLATE_COORDINATES_HALF_PIXEL;
constexpr int64_t kAsymmetric = BP_INTERPOLATE_COORDINATES_ASYMMETRIC;
constexpr int64_t kAlignCorners = BP_INTERPOLATE_COORDINATES_ALIGN_CORNERS;
constexpr int64_t kPytorch = BP_INTERPOLATE_COORDINATES_PYTORCH_HALF_PIXEL;
constexpr int64_t kFloor = BP_INTERPOLATE_ROUNDING_FLOOR, kCeil = BP_INTERPOLATE_ROUNDING_CEIL;
constexpr int64_t kHalfDown = BP_INTERPOLATE_ROUNDING_HALF_DOWN;
constexpr int64_t kHalfUp = BP_INTERPOLATE_ROUNDING_HALF_UP;

Array<double> line(Values values) {
  Array<double> x({1, 1, static_cast<int64_t>(values.size())});
  x.data = std::move(values);
  return x;
}

Values nearest(Values x, int64_t outputs, int64_t coordinates, int64_t rounding) {
  return interpolate({kNearest, coordinates, rounding}, line(std::move(x)), {outputs}).data;
}

Values linear(Values x, int64_t outputs, int64_t coordinates) {
  return interpolate({kLinear, coordinates, kFloor}, line(std::move(x)), {outputs}).data;
}

TEST(Interpolate, NearestRoundsThePosition) {
  EXPECT_EQ(nearest({1, 2, 3}, 6, kAsymmetric, kFloor), (Values{1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(nearest({1, 2, 3, 4, 5}, 3, kAsymmetric, kFloor), (Values{1, 2, 4}));
  EXPECT_EQ(nearest({1, 2, 3}, 6, kAsymmetric, kCeil), (Values{1, 2, 2, 3, 3, 3}));
  // The positions are 0.5 and 2.5.
  EXPECT_EQ(nearest({1, 2, 3, 4}, 2, kHalfPixel, kFloor), (Values{1, 3}));
  EXPECT_EQ(nearest({1, 2, 3, 4}, 2, kHalfPixel, kHalfDown), (Values{1, 3}));
  EXPECT_EQ(nearest({1, 2, 3, 4}, 2, kHalfPixel, kHalfUp), (Values{2, 4}));
  EXPECT_EQ(nearest({1, 2, 3, 4}, 2, kHalfPixel, kCeil), (Values{2, 4}));
  EXPECT_EQ(nearest({1, 2, 3}, 2, kAlignCorners, kFloor), (Values{1, 3}));
  EXPECT_EQ(nearest({1, 2, 3}, 1, kHalfPixel, kFloor), (Values{2}));
  EXPECT_EQ(nearest({1, 2, 3}, 1, kPytorch, kFloor), (Values{1}));
}

TEST(Interpolate, LinearWeightsTheNeighbors) {
  EXPECT_EQ(linear({1, 2, 3, 4}, 8, kHalfPixel),
            (Values{1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4}));
  EXPECT_EQ(linear({1, 2}, 4, kAsymmetric), (Values{1, 1.5, 2, 2}));
  EXPECT_EQ(linear({1, 2, 3}, 5, kAlignCorners), (Values{1, 1.5, 2, 2.5, 3}));
  EXPECT_EQ(linear({1, 2}, 1, kHalfPixel), (Values{1.5}));
  EXPECT_EQ(linear({1, 2}, 1, kAlignCorners), (Values{1}));
  EXPECT_EQ(linear({1, 2}, 1, kPytorch), (Values{1}));
  // A neighbor of weight 0 does not count.
  EXPECT_EQ(linear({1, HUGE_VAL}, 2, kHalfPixel), (Values{1, HUGE_VAL}));
}

TEST(Interpolate, TakesEachAxisByItself) {
  Array<double> x({1, 1, 2, 2});
  x.data = {0, 4, 8, 12};
  const auto y = interpolate({kLinear, kHalfPixel, kFloor}, x, {4, 1});
  EXPECT_EQ(y.data, (Values{2, 4, 8, 10}));
}

TEST(Interpolate, GivesBackWhatItRead) {
  const Interpolation rules{kLinear, kHalfPixel, kFloor};
  EXPECT_EQ(interpolate_backward(rules, line({1, 2, 3, 4}), {2}).data, (Values{3.25, 6.75}));
  const Interpolation floor{kNearest, kAsymmetric, kFloor};
  EXPECT_EQ(interpolate_backward(floor, line({1, 2, 3}), {5}).data, (Values{1, 2, 0, 3, 0}));
}

TEST(AdaptivePool, WindowsOverlap) {
  EXPECT_EQ(adaptive_avg_pool(line({1, 2, 3, 4, 5}), {3}).data, (Values{1.5, 3, 4.5}));
  EXPECT_EQ(adaptive_avg_pool(line({1, 2}), {3}).data, (Values{1, 1.5, 2}));
  EXPECT_EQ(adaptive_avg_pool_backward(line({2, 3, 2}), {5}).data, (Values{1, 2, 1, 2, 1}));
  EXPECT_EQ(adaptive_avg_pool(Array<double>({1, 1, 0}), {2}).data, (Values{0, 0}));
}

TEST(ConvolutionTranspose, AddsAMultipleOfTheKernelForEachElement) {
  ConvolutionGeometry g;
  g.window = {{3}, {2}, {1, 0}, {1}};
  g.x = {1, 1, 5}, g.weight = {1, 1, 3}, g.y = {1, 1, 2};
  Array<double> bias({1});
  bias.data = {100};
  // 1 and 10 times the kernel, two elements apart; the first element is cut off, and one is added.
  EXPECT_EQ(convolution_transpose(g, line({1, 10}), line({1, 2, 3}), &bias).data,
            (Values{102, 113, 120, 130, 100}));
}

}  // namespace
}  // namespace bp::conformance::reference
