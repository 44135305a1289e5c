#include "registry/tensors/floats.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::tensors {
namespace {

TEST(Floats, OfSixteenBitsAreReadAsTheNumbersThatTheyStandFor) {
  EXPECT_EQ(f16_value(0x3C00), 1.0F);
  EXPECT_EQ(f16_value(0xC000), -2.0F);
  EXPECT_EQ(f16_value(0x7BFF), 65504.0F);
  EXPECT_EQ(f16_value(0x0001), 0x1p-24F);
  EXPECT_EQ(f16_value(0x03FF), 0x3FFp-24F);
  EXPECT_EQ(f16_value(0x0400), 0x1p-14F);
  EXPECT_EQ(f16_value(0x7C00), INFINITY);
  EXPECT_EQ(f16_value(0xFC00), -INFINITY);
  EXPECT_TRUE(std::signbit(f16_value(0x8000)));
  EXPECT_TRUE(std::isnan(f16_value(0x7C01)));
  EXPECT_EQ(bf16_value(0x3F80), 1.0F);
  EXPECT_EQ(bf16_value(0xC040), -3.0F);
  EXPECT_EQ(bf16_value(0x0001), 0x1p-133F);
  EXPECT_EQ(bf16_value(0xFF80), -INFINITY);
  EXPECT_TRUE(std::isnan(bf16_value(0x7F81)));
}

TEST(Floats, OfEightBitsOrFewerComeBackAsTheBitsTheyWere) {
  const struct {
    bp_dtype dtype;
    uint32_t bits;
  } rows[] = {{BP_F8E4M3FN, 8}, {BP_F8E5M2, 8}, {BP_F6E2M3, 6}, {BP_F6E3M2, 6}, {BP_F4E2M1, 4}};
  for (const auto& [dtype, bits] : rows) {
    const NarrowFloat& format = *narrow_float(dtype);
    for (uint32_t code = 0; code < 1u << bits; ++code) {
      const float value = narrow_float_value(format, code);
      const uint32_t sign = code & 1u << (bits - 1);
      const uint32_t expected = std::isnan(value)   ? format.nan_code
                                : std::isinf(value) ? sign | format.largest_code
                                                    : code;
      EXPECT_EQ(narrow_float_bits(format, value), expected) << dtype << " " << code;
    }
  }
  EXPECT_EQ(narrow_float(BP_F16), nullptr);
  EXPECT_EQ(narrow_float(BP_F8E8M0FNU), nullptr);
}

// Reading and writing have separate code, so each one shows the mistakes of the other.
TEST(Floats, OfSixteenBitsComeBackAsTheBitsTheyWere) {
  for (uint32_t word = 0; word <= 0xFFFF; ++word) {
    const auto bits = static_cast<uint16_t>(word);
    const float f16 = f16_value(bits), bf16 = bf16_value(bits);
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(f16_value(f16_bits(f16))));
    } else {
      EXPECT_EQ(f16_bits(f16), bits);
    }
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(bf16_value(bf16_bits(bf16))));
    } else {
      EXPECT_EQ(bf16_bits(bf16), bits);
    }
  }
}

TEST(Floats, ThatArePlainAreThoseOfTheLanguageAndOfSixteenBits) {
  for (const bp_dtype dtype : {BP_F16, BP_BF16, BP_F32, BP_F64}) {
    EXPECT_TRUE(is_plain_float(dtype)) << dtype;
  }
  for (const bp_dtype dtype : {BP_BOOL, BP_U64, BP_C64, BP_F8E5M2}) {
    EXPECT_FALSE(is_plain_float(dtype)) << dtype;
  }
}

}  // namespace
}  // namespace bp::tensors
