#include "conformance/numerics/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace bp::conformance {
namespace {

double from_bits(bp_dtype dtype, uint64_t bits) {
  std::byte bytes[8];
  std::memcpy(bytes, &bits, sizeof(bits));
  return load_element(dtype, bytes).hi;
}

double stored(bp_dtype dtype, DoubleDouble value) {
  std::byte bytes[8] = {};
  store_element(dtype, value, bytes);
  return load_element(dtype, bytes).hi;
}

uint64_t stored_bits(bp_dtype dtype, DoubleDouble value) {
  std::byte bytes[8] = {};
  store_element(dtype, value, bytes);
  return element_bits_at(dtype, bytes);
}

TEST(Dtype, KnowsTheLimitsOfEachFormat) {
  EXPECT_EQ(float_format(BP_F16)->largest(), 65504);
  EXPECT_EQ(float_format(BP_F16)->smallest_normal(), 0x1p-14);
  EXPECT_EQ(float_format(BP_F16)->smallest_subnormal(), 0x1p-24);
  EXPECT_EQ(float_format(BP_BF16)->smallest_normal(), 0x1p-126);
  EXPECT_EQ(float_format(BP_F32)->largest(), static_cast<double>(3.40282346638528859812e38f));
  EXPECT_EQ(float_format(BP_F64)->smallest_subnormal(), 0x1p-1074);
}

TEST(Dtype, RoundsTiesToEven) {
  EXPECT_EQ(round_to(BP_F16, 1 + 0x1p-11), 1);
  EXPECT_EQ(round_to(BP_F16, 1 + 3 * 0x1p-11), 1 + 2 * 0x1p-10);
  EXPECT_EQ(round_to(BP_BF16, 1 + 0x1p-8), 1);
  EXPECT_EQ(round_to(BP_BF16, -(1 + 3 * 0x1p-8)), -(1 + 2 * 0x1p-7));
  EXPECT_EQ(round_to(BP_F32, 1 + 0x1p-24), 1);
}

TEST(Dtype, BreaksTiesByWhatIsBelowTheDouble) {
  EXPECT_EQ(round_to(BP_F32, DoubleDouble(1 + 0x1p-24, 0x1p-80)), 1 + 0x1p-23);
  EXPECT_EQ(round_to(BP_F32, DoubleDouble(1 + 3 * 0x1p-24, -0x1p-80)), 1 + 0x1p-23);
  EXPECT_EQ(round_to(BP_F32, -DoubleDouble(1 + 0x1p-24, 0x1p-80)), -(1 + 0x1p-23));
}

TEST(Dtype, RoundsIntoSubnormalsAndToInfinity) {
  EXPECT_EQ(round_to(BP_F16, 0x1p-25), 0);
  EXPECT_EQ(round_to(BP_F16, 0x1.8p-25), 0x1p-24);
  EXPECT_EQ(round_to(BP_F16, 65519.9), 65504);
  EXPECT_EQ(round_to(BP_F16, 65520), HUGE_VAL);
  EXPECT_TRUE(std::signbit(round_to(BP_F16, -0x1p-30)));
}

TEST(Dtype, RoundsToF32AsTheHardwareDoes) {
  for (int i = 0; i < 20000; ++i) {
    const double x = std::ldexp(std::sin(i * 1.234567), i % 320 - 160);
    EXPECT_EQ(round_to(BP_F32, x), static_cast<double>(static_cast<float>(x))) << x;
  }
}

// Each NaN too keeps its sign and its payload.
TEST(Dtype, GivesEachValueOf16BitsBackUnchanged) {
  for (const bp_dtype dtype : {BP_F16, BP_BF16}) {
    for (uint64_t bits = 0; bits < 0x10000; ++bits) {
      EXPECT_EQ(stored_bits(dtype, from_bits(dtype, bits)), bits) << dtype_text(dtype);
    }
  }
}

TEST(Dtype, KeepsPayloadsOfNan) {
  for (const uint64_t bits : {0x7fc00000u, 0xffc12345u, 0x7f800001u}) {
    EXPECT_EQ(stored_bits(BP_F32, from_bits(BP_F32, bits)), bits);
  }
  for (const uint64_t bits : {0x7ff8000000000000u, 0xfff8000000000001u, 0x7ff0000000000001u}) {
    EXPECT_EQ(stored_bits(BP_F64, from_bits(BP_F64, bits)), bits);
  }
  // A payload that a narrower format has no bits for becomes that of a quiet NaN.
  EXPECT_EQ(stored_bits(BP_F16, from_bits(BP_F64, 0x7ff0000000000001u)), 0x7e00u);
  EXPECT_EQ(stored_bits(BP_BF16, from_bits(BP_F64, 0xfff8000000000001u)), 0xffc0u);
}

TEST(Dtype, EncodesKnownWords) {
  EXPECT_EQ(stored_bits(BP_F16, 1), 0x3c00u);
  EXPECT_EQ(stored_bits(BP_F16, -2), 0xc000u);
  EXPECT_EQ(stored_bits(BP_BF16, 1), 0x3f80u);
  EXPECT_EQ(stored_bits(BP_F32, -1.5), 0xbfc00000u);
  EXPECT_EQ(stored_bits(BP_F64, 1), 0x3ff0000000000000u);
  EXPECT_EQ(stored_bits(BP_F16, HUGE_VAL), 0x7c00u);
}

TEST(Dtype, WrapsIntegersToTheirWidth) {
  EXPECT_EQ(stored(BP_I32, 0x1p31), -0x1p31);
  EXPECT_EQ(stored(BP_U8, 257.0), 1);
  EXPECT_EQ(stored(BP_I8, 128.0), -128);
  EXPECT_EQ(stored(BP_BOOL, 7.0), 1);
}

TEST(Dtype, HoldsEveryInt64) {
  for (const int64_t value :
       {INT64_MIN, INT64_MAX, INT64_MAX - 1, int64_t{-1}, int64_t{0}, (int64_t{1} << 53) + 1}) {
    EXPECT_EQ(to_int64(DoubleDouble::from_int64(value)), value);
  }
}

TEST(Dtype, SpacesValuesByTheirExponent) {
  EXPECT_EQ(ulp(BP_F32, 1), 0x1p-23);
  EXPECT_EQ(ulp(BP_F32, 0), 0x1p-149);
  EXPECT_EQ(ulp(BP_F16, 0x1p-20), 0x1p-24);
  EXPECT_EQ(next_after(BP_F16, 1, HUGE_VAL), 1 + 0x1p-10);
  EXPECT_EQ(next_after(BP_F16, 1, -HUGE_VAL), 1 - 0x1p-11);
  EXPECT_EQ(next_after(BP_F16, 65504, HUGE_VAL), HUGE_VAL);
  EXPECT_EQ(next_after(BP_F32, 0, -1), -0x1p-149);
}

}  // namespace
}  // namespace bp::conformance
