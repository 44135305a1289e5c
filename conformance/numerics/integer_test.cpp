#include "conformance/numerics/integer.hpp"

#include <gtest/gtest.h>

namespace bp::conformance {
namespace {

TEST(Integers, WrapAsTwosComplementDoes) {
  const Integer least(INT64_MIN), most(INT64_MAX), one(1);
  EXPECT_EQ((most + one).value, INT64_MIN);
  EXPECT_EQ((least - one).value, INT64_MAX);
  EXPECT_EQ((-least).value, INT64_MIN) << "it has no positive counterpart";
  EXPECT_EQ(abs(least).value, INT64_MIN);
  EXPECT_EQ((most * Integer(2)).value, -2);
  EXPECT_EQ((least * least).value, 0);
  EXPECT_EQ((Integer(-1) * Integer(-1)).value, 1);
  EXPECT_EQ(abs(Integer(-7)).value, 7);
  EXPECT_TRUE(least < most);
  EXPECT_FALSE(most < least) << "the difference of both wraps, and their order does not";
}

// The oracle of i32 computes in 64 bits and stores the low half.
TEST(Integers, HaveTheLowHalfOf32BitArithmetic) {
  const int32_t values[] = {0, 1, -1, 7, -13, 46341, INT32_MAX, INT32_MIN, 0x12345678};
  const auto low = [](Integer i) { return static_cast<int32_t>(static_cast<uint32_t>(i.bits())); };
  for (const int32_t a : values) {
    for (const int32_t b : values) {
      const auto ua = static_cast<uint32_t>(a), ub = static_cast<uint32_t>(b);
      EXPECT_EQ(low(Integer(a) + Integer(b)), static_cast<int32_t>(ua + ub));
      EXPECT_EQ(low(Integer(a) - Integer(b)), static_cast<int32_t>(ua - ub));
      EXPECT_EQ(low(Integer(a) * Integer(b)), static_cast<int32_t>(ua * ub));
    }
  }
}

}  // namespace
}  // namespace bp::conformance
