#include "conformance/numerics/accept.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::conformance {
namespace {

constexpr Numerics kStrict;

TEST(Accept, WantsTheNearestValueWhereTheBoundIsZero) {
  const Exact third{DoubleDouble(1) / DoubleDouble(3)};
  const double nearest = static_cast<double>(1.0f / 3.0f);
  EXPECT_TRUE(accept(BP_F32, nearest, third, kStrict));
  EXPECT_FALSE(accept(BP_F32, next_after(BP_F32, nearest, 1), third, kStrict));
  EXPECT_FALSE(accept(BP_F32, next_after(BP_F32, nearest, 0), third, kStrict));
}

TEST(Accept, AddsTheBoundBeforeItRounds) {
  // The bound reaches over the tie above 1, so both neighbours of the tie are right in f16.
  const Exact near_tie{DoubleDouble(1 + 0x1p-11 - 0x1p-30), 0x1p-25};
  EXPECT_TRUE(accept(BP_F16, 1, near_tie, kStrict));
  EXPECT_TRUE(accept(BP_F16, 1 + 0x1p-10, near_tie, kStrict));
  EXPECT_FALSE(accept(BP_F16, 1 - 0x1p-11, near_tie, kStrict));
}

TEST(Accept, LetsFaithfulRoundingChooseEitherNeighbour) {
  Numerics faithful;
  faithful.faithful = true;
  const Exact exact{DoubleDouble(1 + 0x1p-13)};
  EXPECT_FALSE(accept(BP_F16, 1 + 0x1p-10, exact, kStrict));
  EXPECT_TRUE(accept(BP_F16, 1 + 0x1p-10, exact, faithful));
  EXPECT_FALSE(accept(BP_F16, 1 + 2 * 0x1p-10, exact, faithful));
}

TEST(Accept, WantsNanExactlyWhereItBelongs) {
  const Exact nan{DoubleDouble(std::nan(""))};
  EXPECT_TRUE(accept(BP_F32, std::nan("1"), nan, kStrict));
  EXPECT_FALSE(accept(BP_F32, 0, nan, kStrict));
  EXPECT_FALSE(accept(BP_F32, std::nan(""), {DoubleDouble(0), HUGE_VAL}, kStrict));
}

TEST(Accept, WantsInfinityBeyondTheLargestValue) {
  const Exact beyond{DoubleDouble(0x1p130)};
  EXPECT_TRUE(accept(BP_F32, HUGE_VAL, beyond, kStrict));
  EXPECT_FALSE(accept(BP_F32, float_format(BP_F32)->largest(), beyond, kStrict));
  Numerics saturating;
  saturating.saturates = true;
  EXPECT_TRUE(accept(BP_F32, float_format(BP_F32)->largest(), beyond, saturating));
}

TEST(Accept, TakesAFlushedResultOnlyIfDeclared) {
  const Exact subnormal{DoubleDouble(0x1p-130)};
  EXPECT_FALSE(accept(BP_F32, 0, subnormal, kStrict));
  Numerics flushing;
  flushing.flush_outputs = true;
  EXPECT_TRUE(accept(BP_F32, -0.0, subnormal, flushing));
  EXPECT_FALSE(accept(BP_F32, 0, {DoubleDouble(0x1p-120)}, flushing));
}

TEST(Accept, ChecksTheSignOfZeroWhereItMatters) {
  EXPECT_TRUE(accept(BP_F32, 0.0, {DoubleDouble(-0.0)}, kStrict));
  EXPECT_FALSE(accept(BP_F32, 0.0, {DoubleDouble(-0.0), 0, true}, kStrict));
  EXPECT_TRUE(accept(BP_F32, -0.0, {DoubleDouble(-0.0), 0, true}, kStrict));
}

TEST(Accept, IgnoresABoundThatIsNoNumber) {
  EXPECT_TRUE(accept(BP_F32, HUGE_VAL, {DoubleDouble(HUGE_VAL), HUGE_VAL}, kStrict));
  EXPECT_FALSE(accept(BP_F32, 2, {DoubleDouble(1), std::nan("")}, kStrict));
}

TEST(Accept, MeasuresTheMarginInHalfWidths) {
  EXPECT_EQ(margin(BP_F32, 1, {DoubleDouble(1), 0.25}), 0);
  EXPECT_NEAR(margin(BP_F32, 1.5, {DoubleDouble(1), 0.25}), 2, 1e-6);
  EXPECT_EQ(margin(BP_F32, std::nan(""), {DoubleDouble(1)}), HUGE_VAL);
}

}  // namespace
}  // namespace bp::conformance
