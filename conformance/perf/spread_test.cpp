#include "conformance/perf/spread.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace bp::conformance {
namespace {

TEST(Spread, IsTheMedianAndTheMedianOfDistancesFromIt) {
  const Spread odd = spread_of({5, 1, 2, 100, 3});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.deviation, 2);
  EXPECT_EQ(spread_of({1, 2, 3, 10}).median, 2.5);
  EXPECT_EQ(spread_of({}).median, 0);
}

TEST(Spread, OfOneValueHasNoDeviation) {
  EXPECT_EQ(spread_of({7}).median, 7);
  EXPECT_EQ(spread_of({7}).deviation, 0);
}

// Returns the share of `tries` in which the median of `count` values lies within its uncertainty of
// the truth.
template <typename Draw>
double coverage(size_t count, Draw draw) {
  constexpr int kTries = 400;
  int covered = 0;
  for (int i = 0; i < kTries; ++i) {
    std::vector<double> values(count);
    for (double& value : values) value = std::exp(draw());
    covered += std::fabs(std::log(spread_of(values).median)) <= uncertainty_of(values);
  }
  return covered / static_cast<double>(kTries);
}

TEST(UncertaintyOf, HoldsTheMedianOfIndependentValues) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 0.05);
  const double share = coverage(120, [&] { return noise(random); });
  EXPECT_GE(share, 0.9);
  EXPECT_LE(share, 0.99);
}

TEST(UncertaintyOf, HoldsTheMedianOfValuesThatAreAlikeInARow) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> noise(0, 0.01);
  double state = 0;
  EXPECT_GE(coverage(240, [&] { return state = 0.9 * state + noise(random); }), 0.88);
}

TEST(UncertaintyOf, IsWideWhereTheSecondHalfIsSlower) {
  std::vector<double> values(100, 1.0);
  std::fill(values.begin() + 50, values.end(), 1.3);
  EXPECT_GT(uncertainty_of(values), 0.1);
  EXPECT_EQ(uncertainty_of(std::vector<double>(100, 1.3)), 0);
}

TEST(UncertaintyOf, OfTooFewValuesIsInfinite) {
  EXPECT_TRUE(std::isinf(uncertainty_of({})));
  EXPECT_TRUE(std::isinf(uncertainty_of({1})));
  EXPECT_NEAR(uncertainty_of({1, std::exp(0.1)}), 12.71 * 0.1 / 2, 1e-9);
}

TEST(RankDifference, IsLargeOnlyWhereOneIsMostlyAboveTheOther) {
  std::vector<double> low, high, mixed;
  for (int i = 0; i < 20; ++i) {
    low.push_back(i);
    high.push_back(i + 100);
    mixed.push_back(19 - i);
  }
  EXPECT_NEAR(rank_difference(high, low), 200 / std::sqrt(400 * 41 / 12.0), 1e-12);
  EXPECT_NEAR(rank_difference(low, high), -200 / std::sqrt(400 * 41 / 12.0), 1e-12);
  EXPECT_NEAR(rank_difference(low, mixed), 0, 1e-12);
  EXPECT_EQ(rank_difference({}, low), 0);
}

TEST(RankDifference, IsNotMovedByFewValuesFarOff) {
  std::vector<double> a(20, 1), b(20, 1);
  a[3] = a[7] = 1e9;
  EXPECT_LT(rank_difference(a, b), 2);
}

}  // namespace
}  // namespace bp::conformance
