#include "registry/tensors/scalar.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace bp::core {
namespace {

bp_scalar of(double value) {
  bp_scalar scalar{BP_F64, 0, 0};
  std::memcpy(&scalar.bits, &value, sizeof(value));
  return scalar;
}

bp_scalar of_i64(int64_t value) { return {BP_I64, 0, static_cast<uint64_t>(value)}; }

template <typename T>
T convert(const bp_scalar& scalar, bp_dtype dtype) {
  unsigned char bytes[16] = {};
  EXPECT_EQ(scalar_bytes(scalar, dtype, bytes), sizeof(T));
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

TEST(ScalarBytes, ConvertToEveryPlainDtype) {
  EXPECT_EQ(convert<float>(of(0.1), BP_F32), 0.1f);
  EXPECT_EQ(convert<double>(of_i64(-3), BP_F64), -3.0);
  EXPECT_EQ(convert<float>({BP_U64, 0, UINT64_MAX}, BP_F32), 0x1p64f);
  EXPECT_EQ(convert<int8_t>(of_i64(-3), BP_I8), -3);
  EXPECT_EQ(convert<int32_t>(of(-2.7), BP_I32), -2);
  EXPECT_EQ(convert<uint64_t>(of(0x1p63), BP_U64), uint64_t{1} << 63);
  EXPECT_EQ(convert<uint8_t>(of(0.5), BP_BOOL), 1);
  EXPECT_EQ(convert<uint8_t>({BP_BOOL, 0, 1}, BP_BOOL), 1);
  EXPECT_EQ(convert<float>({BP_BOOL, 0, 1}, BP_F32), 1.0f);
  // A conversion through a double would round twice.
  EXPECT_EQ(convert<float>(of_i64(0x1000001000000001), BP_F32), 0x1.000002p60f);
}

TEST(ScalarBytes, RoundOnceToTheNearestHalf) {
  EXPECT_EQ(convert<uint16_t>(of(1.0), BP_F16), 0x3C00);
  EXPECT_EQ(convert<uint16_t>(of(-2.0), BP_F16), 0xC000);
  EXPECT_EQ(convert<uint16_t>(of(65504.0), BP_F16), 0x7BFF);
  EXPECT_EQ(convert<uint16_t>(of(65520.0), BP_F16), 0x7C00);
  EXPECT_EQ(convert<uint16_t>(of(0x1p-24), BP_F16), 0x0001);
  EXPECT_EQ(convert<uint16_t>(of(0x1p-25), BP_F16), 0x0000);  // A tie goes to even.
  EXPECT_EQ(convert<uint16_t>(of(0x1.8p-25), BP_F16), 0x0001);
  EXPECT_EQ(convert<uint16_t>(of(0x1p-14), BP_F16), 0x0400);
  EXPECT_EQ(convert<uint16_t>(of(1 + 0x1p-11), BP_F16), 0x3C00);  // A tie goes to even.
  // A float would lose the last bit.
  EXPECT_EQ(convert<uint16_t>(of(1 + 0x1p-11 + 0x1p-40), BP_F16), 0x3C01);
  EXPECT_EQ(convert<uint16_t>(of(std::numeric_limits<double>::infinity()), BP_F16), 0x7C00);
  EXPECT_EQ(convert<uint16_t>(of(-0.0), BP_F16), 0x8000);
  EXPECT_EQ(convert<uint16_t>(of(1.0), BP_BF16), 0x3F80);
  EXPECT_EQ(convert<uint16_t>(of(3.0), BP_BF16), 0x4040);
  EXPECT_EQ(convert<uint16_t>(of(1e300), BP_BF16), 0x7F80);
  EXPECT_EQ(convert<uint16_t>(of(0x1p-133), BP_BF16), 0x0001);
  EXPECT_EQ(convert<uint16_t>(of(std::nan("")), BP_BF16) & 0x7FC0, 0x7FC0);
}

TEST(ScalarBytes, RoundOnceToTheNearestFloatOfEightBitsOrFewer) {
  EXPECT_EQ(convert<uint8_t>(of(1.0), BP_F8E4M3FN), 0x38);
  EXPECT_EQ(convert<uint8_t>(of(-448.0), BP_F8E4M3FN), 0xFE);
  EXPECT_EQ(convert<uint8_t>(of(1e9), BP_F8E4M3FN), 0x7E) << "the largest number";
  EXPECT_EQ(convert<uint8_t>(of(1.0625), BP_F8E4M3FN), 0x38) << "a tie goes to even";
  EXPECT_EQ(convert<uint8_t>(of(1.0625 + 0x1p-40), BP_F8E4M3FN), 0x39) << "it is no tie";
  EXPECT_EQ(convert<uint8_t>(of(0x1p-9), BP_F8E4M3FN), 0x01) << "the smallest number";
  EXPECT_EQ(convert<uint8_t>(of(std::nan("")), BP_F8E4M3FN), 0x7F);
  EXPECT_EQ(convert<uint8_t>(of(-HUGE_VAL), BP_F8E5M2), 0xFB);
  EXPECT_EQ(convert<uint8_t>(of(std::nan("")), BP_F8E5M2), 0x7E);
  EXPECT_EQ(convert<uint8_t>(of(-1.0), BP_F4E2M1), 0b1010) << "its other bits are 0";
  EXPECT_EQ(convert<uint8_t>(of(2.5), BP_F4E2M1), 0b0100) << "a tie goes to even";
  EXPECT_EQ(convert<uint8_t>(of(std::nan("")), BP_F4E2M1), 0) << "there is no NaN";
  EXPECT_EQ(convert<uint8_t>(of_i64(7), BP_F6E2M3), 0b011110);
  EXPECT_EQ(convert<uint8_t>(of(0.0625), BP_F6E3M2), 0b000001);
  EXPECT_EQ(convert<uint8_t>(of(1.0), BP_F8E8M0FNU), 127);
  EXPECT_EQ(convert<uint8_t>(of(1.5), BP_F8E8M0FNU), 128) << "of two the one with an even code";
  EXPECT_EQ(convert<uint8_t>(of(3.0), BP_F8E8M0FNU), 128) << "of two the one with an even code";
  EXPECT_EQ(convert<uint8_t>(of(-4.0), BP_F8E8M0FNU), 0) << "the smallest number";
}

TEST(ScalarBytes, CutIntegersToTheirBits) {
  EXPECT_EQ(convert<uint8_t>(of_i64(-3), BP_I4), 0b1101);
  EXPECT_EQ(convert<uint8_t>(of_i64(0x57), BP_U4), 7);
  EXPECT_EQ(convert<uint8_t>(of(-2.7), BP_I2), 0b10);
  EXPECT_EQ(convert<uint8_t>(of_i64(3), BP_U2), 3);
}

TEST(HoldsScalar, ComparesWithTheValueInF32) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -0.0, 0.5, -3.0, 0x1p-24, kInfinity, double{NAN}}) {
    EXPECT_TRUE(holds_scalar(of(value), BP_F16)) << value;
    EXPECT_TRUE(holds_scalar(of(value), BP_BF16)) << value;
  }
  EXPECT_TRUE(holds_scalar(of(1 + 0x1p-40), BP_BF16)) << "it is 1 in f32";
  EXPECT_TRUE(holds_scalar(of(1 + 0x1p-10), BP_F16));
  EXPECT_FALSE(holds_scalar(of(1 + 0x1p-10), BP_BF16));
  EXPECT_TRUE(holds_scalar(of_i64(65536), BP_BF16));
  EXPECT_FALSE(holds_scalar(of_i64(65536), BP_F16)) << "it is infinite there";
  EXPECT_FALSE(holds_scalar(of(0.99), BP_BF16));
}

TEST(ScalarBytes, RefuseDtypesWithoutSuchAnElement) {
  unsigned char bytes[16];
  EXPECT_EQ(scalar_bytes(of(1), BP_F8E4M3FNUZ, bytes), 0);
  EXPECT_EQ(scalar_bytes({.dtype = BP_C128}, BP_F64, bytes), 0) << "an imaginary part would go";
}

TEST(ScalarBytes, HaveBothPartsOfComplexDtypes) {
  bp_scalar scalar = of(0.1);
  scalar.dtype = BP_C128;
  scalar.imaginary_bits = of(-2).bits;
  using Doubles = std::array<double, 2>;
  using Floats = std::array<float, 2>;
  EXPECT_EQ(convert<Doubles>(scalar, BP_C128), (Doubles{0.1, -2}));
  EXPECT_EQ(convert<Floats>(scalar, BP_C64), (Floats{0.1f, -2}));
  EXPECT_EQ(convert<Doubles>(of(0.1), BP_C128), (Doubles{0.1, 0}));
  EXPECT_EQ(convert<Floats>(of_i64(-3), BP_C64), (Floats{-3, 0}));
}

}  // namespace
}  // namespace bp::core
