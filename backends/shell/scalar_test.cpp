#include "backplane/shell/scalar.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

uint64_t of_f64(double value, bp_dtype dtype) {
  return convert_scalar({.dtype = BP_F64, .bits = std::bit_cast<uint64_t>(value)}, dtype);
}
uint64_t of_i64(int64_t value, bp_dtype dtype) {
  return convert_scalar({.dtype = BP_I64, .bits = static_cast<uint64_t>(value)}, dtype);
}
uint64_t of_u64(uint64_t value, bp_dtype dtype) {
  return convert_scalar({.dtype = BP_U64, .bits = value}, dtype);
}

TEST(ConvertScalar, RoundsOnce) {
  EXPECT_EQ(of_f64(1.5, BP_F32), std::bit_cast<uint32_t>(1.5f));
  EXPECT_EQ(of_f64(-2.0, BP_F16), 0xC000);
  EXPECT_EQ(of_f64(70000.0, BP_F16), 0x7C00) << "infinity";
  EXPECT_EQ(of_f64(1e39, BP_BF16), 0x7F80);
  // The value is just above the middle between 1 and the next f16. Rounded to f32, it is the
  // middle.
  EXPECT_EQ(of_f64(1 + 0x1p-11 + 0x1p-40, BP_F16), 0x3C01);
  EXPECT_EQ(of_f64(1 + 0x1p-8 + 0x1p-40, BP_BF16), 0x3F81);
  // The integer value is just above the middle too, and rounded to f64 it is the middle.
  EXPECT_EQ(of_i64((int64_t{1} << 62) + (int64_t{1} << 54) + 1, BP_BF16), 0x5E81);
  EXPECT_EQ(of_u64((uint64_t{1} << 63) + (uint64_t{1} << 55) + 1, BP_BF16), 0x5F01);
  EXPECT_EQ(of_i64((int64_t{1} << 62) + (int64_t{1} << 54), BP_BF16), 0x5E80) << "a tie";
}

TEST(ConvertScalar, CutsFloatsAndWrapsIntegers) {
  EXPECT_EQ(of_f64(-1.9, BP_I32), 0xFFFFFFFF);
  EXPECT_EQ(of_f64(300.7, BP_U8), 44u);
  EXPECT_EQ(of_i64(-1, BP_U16), 0xFFFF);
  EXPECT_EQ(of_u64(UINT64_MAX, BP_I8), 0xFF);
  EXPECT_EQ(of_f64(0x1p63, BP_U64), uint64_t{1} << 63);
  EXPECT_EQ(of_f64(1e300, BP_U64), UINT64_MAX);
  EXPECT_EQ(of_f64(-1e300, BP_I64), uint64_t{1} << 63);
  EXPECT_EQ(of_f64(std::numeric_limits<double>::quiet_NaN(), BP_I32), 0u);
  EXPECT_EQ(of_f64(0.25, BP_BOOL), 1u);
  EXPECT_EQ(of_f64(-0.0, BP_BOOL), 0u);
}

TEST(ConvertOperand, RoundsToTheDtypeInWhichTheOpComputes) {
  const bp_scalar tenth{.dtype = BP_F64, .bits = std::bit_cast<uint64_t>(0.1)};
  for (const bp_dtype x : {BP_F16, BP_BF16, BP_F32}) {
    EXPECT_EQ(convert_operand(tenth, x), std::bit_cast<uint32_t>(0.1f)) << x;
  }
  EXPECT_EQ(convert_operand(tenth, BP_F64), std::bit_cast<uint64_t>(0.1));
  EXPECT_EQ(convert_operand({.dtype = BP_I64, .bits = 3}, BP_I32), 3u);
}

TEST(ConvertOperand, RoundsAMovedOneOnceMore) {
  // The value is just above the middle between 1 and the next number. In f32 it is the middle.
  const bp_scalar above{.dtype = BP_F64, .bits = std::bit_cast<uint64_t>(1 + 0x1p-8 + 0x1p-40)};
  EXPECT_EQ(convert_scalar(above, BP_BF16), 0x3F81u);
  EXPECT_EQ(convert_moved_operand(above, BP_BF16), 0x3F80u);
  EXPECT_EQ(convert_moved_operand(above, BP_F64), above.bits);
  EXPECT_EQ(convert_moved_operand({.dtype = BP_I64, .bits = 3}, BP_U8), 3u);
}

TEST(ConvertScalar, RefusesDtypesThatAScalarCannotHave) {
  try {
    convert_scalar({.dtype = BP_F32}, BP_F32);
    FAIL();
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    EXPECT_STREQ(e.what(), "a scalar has dtype 14; bool, i64, u64 and f64 are allowed");
  }
}

}  // namespace
}  // namespace bp
