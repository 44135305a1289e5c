#include "conformance/numerics/double_double.hpp"

#include <gtest/gtest.h>

namespace bp::conformance {
namespace {

// Returns |a - b| in units of 2^-104 * |b|.
double distance(DoubleDouble a, DoubleDouble b) {
  return std::fabs((a - b).hi) / std::fabs(b.hi) * 0x1p104;
}

TEST(DoubleDouble, AddsWithoutLosingTheSmallTerm) {
  const DoubleDouble sum = DoubleDouble(1) + DoubleDouble(0x1p-100);
  EXPECT_EQ(sum.hi, 1);
  EXPECT_EQ(sum.lo, 0x1p-100);
  EXPECT_EQ((sum - DoubleDouble(1)).hi, 0x1p-100);
}

TEST(DoubleDouble, MultipliesExactly) {
  const DoubleDouble product = DoubleDouble(1 + 0x1p-52) * DoubleDouble(1 + 0x1p-52);
  EXPECT_EQ(product.hi, 1 + 0x1p-51);
  EXPECT_EQ(product.lo, 0x1p-104);
}

TEST(DoubleDouble, DividesAndTakesRootsToTheLastBits) {
  const DoubleDouble third = DoubleDouble(1) / DoubleDouble(3);
  EXPECT_LT(distance(third * DoubleDouble(3), DoubleDouble(1)), 8);
  const DoubleDouble root = sqrt(DoubleDouble(2));
  EXPECT_LT(distance(root * root, DoubleDouble(2)), 8);
}

TEST(DoubleDouble, LeavesCorrectlyRoundedResultsInTheHighPart) {
  const double below_one = 1 - 0x1p-53;
  EXPECT_EQ(sqrt(DoubleDouble(below_one)).hi, std::sqrt(below_one));
  const double largest = 0x1.fffffffffffffp1023;
  EXPECT_EQ((DoubleDouble(largest) / DoubleDouble(1.5)).hi, largest / 1.5);
  EXPECT_EQ((DoubleDouble(1) / DoubleDouble(49)).hi, 1.0 / 49);
}

TEST(DoubleDouble, KnowsEAndTheLogarithmOfTen) {
  const DoubleDouble e(0x1.5bf0a8b145769p+1, 0x1.4d57ee2b1013ap-53);
  EXPECT_LT(distance(exp(DoubleDouble(1)), e), 256);
  const DoubleDouble ln10(0x1.26bb1bbb55516p+1, -0x1.f48ad494ea3e9p-53);
  EXPECT_LT(distance(log(DoubleDouble(10)), ln10), 256);
}

TEST(DoubleDouble, ExpAndLogInvertEachOther) {
  for (const double x : {-300.0, -1.0, -1e-8, 1e-8, 0.5, 0.99, 1.01, 3.0, 700.0}) {
    const DoubleDouble back = log(exp(DoubleDouble(x)));
    EXPECT_LT(std::fabs((back - DoubleDouble(x)).hi), 0x1p-98 * std::fmax(1, std::fabs(x))) << x;
  }
}

TEST(DoubleDouble, AgreesWithTheLibraryAtItsPrecision) {
  for (double x = -40; x < 40; x += 0.37) {
    EXPECT_NEAR(exp(DoubleDouble(x)).hi / std::exp(x), 1, 0x1p-51);
    if (x <= 0) continue;
    EXPECT_NEAR(log(DoubleDouble(x)).hi, std::log(x), 0x1p-50);
  }
}

TEST(DoubleDouble, KeepsSpecialValues) {
  EXPECT_EQ(exp(DoubleDouble(1000)).hi, HUGE_VAL);
  EXPECT_EQ(exp(DoubleDouble(-1000)).hi, 0);
  EXPECT_EQ(log(DoubleDouble(0)).hi, -HUGE_VAL);
  EXPECT_TRUE(isnan(log(DoubleDouble(-1))));
  EXPECT_TRUE(isnan(DoubleDouble(HUGE_VAL) - DoubleDouble(HUGE_VAL)));
  EXPECT_EQ((DoubleDouble(1) / DoubleDouble(0)).hi, HUGE_VAL);
  EXPECT_EQ((DoubleDouble(HUGE_VAL) + DoubleDouble(1)).hi, HUGE_VAL);
}

TEST(DoubleDouble, KeepsTheSignOfZero) {
  EXPECT_TRUE(std::signbit((DoubleDouble(-0.0) + DoubleDouble(-0.0)).hi));
  EXPECT_TRUE(std::signbit((DoubleDouble(-0.0) * DoubleDouble(3)).hi));
  EXPECT_TRUE(std::signbit(sqrt(DoubleDouble(-0.0)).hi));
  EXPECT_FALSE(std::signbit((DoubleDouble(1) - DoubleDouble(1)).hi));
}

}  // namespace
}  // namespace bp::conformance
