#include "conformance/perf/spread.hpp"

#include <gtest/gtest.h>

#include <cmath>

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

TEST(Spread, DiffersBeyondThreeScaledDeviationsOfBoth) {
  // hypot(0.3, 0.4) = 0.5, and three times 1.4826 of it is 2.2239.
  EXPECT_FALSE(differ({10, 0.3}, {12.2, 0.4}));
  EXPECT_TRUE(differ({10, 0.3}, {12.3, 0.4}));
  EXPECT_TRUE(differ({12.3, 0.3}, {10, 0.4}));
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
