// Tests the formats of 4, 6 and 8 bits against values from the OCP specifications.
#include "conformance/numerics/narrow_format.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {
namespace {

constexpr bp_dtype kNarrow[] = {BP_F8E4M3FN, BP_F8E5M2, BP_F8E8M0FNU,
                                BP_F6E2M3,   BP_F6E3M2, BP_F4E2M1};

TEST(NarrowFormat, HasTheValuesOfItsSpecification) {
  EXPECT_EQ(narrow_values(BP_F8E4M3FN)[0x7e], 448);
  EXPECT_EQ(narrow_values(BP_F8E4M3FN)[0x01], 0x1p-9);
  EXPECT_EQ(narrow_values(BP_F8E4M3FN)[0x08], 0x1p-6);
  EXPECT_TRUE(std::isnan(narrow_values(BP_F8E4M3FN)[0xff]));
  EXPECT_EQ(narrow_values(BP_F8E5M2)[0x7b], 57344);
  EXPECT_EQ(narrow_values(BP_F8E5M2)[0x01], 0x1p-16);
  EXPECT_EQ(narrow_values(BP_F8E5M2)[0xfc], -HUGE_VAL);
  EXPECT_TRUE(std::isnan(narrow_values(BP_F8E5M2)[0x7d]));
  EXPECT_EQ(narrow_values(BP_F8E8M0FNU)[0], 0x1p-127);
  EXPECT_EQ(narrow_values(BP_F8E8M0FNU)[254], 0x1p127);
  EXPECT_TRUE(std::isnan(narrow_values(BP_F8E8M0FNU)[255]));
  EXPECT_EQ(narrow_values(BP_F6E2M3)[0x1f], 7.5);
  EXPECT_EQ(narrow_values(BP_F6E2M3)[0x01], 0.125);
  EXPECT_EQ(narrow_values(BP_F6E3M2)[0x1f], 28);
  EXPECT_EQ(narrow_values(BP_F6E3M2)[0x01], 0.0625);
  const std::vector<double> f4 = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  EXPECT_EQ(narrow_values(BP_F4E2M1), f4);
}

TEST(NarrowFormat, GivesBackTheCodeOfEachValue) {
  for (const bp_dtype dtype : kNarrow) {
    const std::vector<double>& values = narrow_values(dtype);
    ASSERT_EQ(values.size(), size_t{1} << dtype_bits(dtype));
    for (uint32_t code = 0; code < values.size(); ++code) {
      if (!std::isfinite(values[code])) continue;
      EXPECT_EQ(narrow_code(dtype, values[code]), code) << dtype;
    }
  }
}

TEST(NarrowFormat, RoundsTiesToEvenAndSaturates) {
  EXPECT_EQ(narrow_code(BP_F4E2M1, 2.5), 4u);
  EXPECT_EQ(narrow_code(BP_F4E2M1, 3.5), 6u);
  EXPECT_EQ(narrow_code(BP_F4E2M1, -0.25), 8u);
  EXPECT_EQ(narrow_code(BP_F4E2M1, -HUGE_VAL), 15u);
  EXPECT_EQ(narrow_code(BP_F4E2M1, std::nan("")), 0u);
  EXPECT_EQ(narrow_code(BP_F8E4M3FN, 464), 0x7eu);
  EXPECT_EQ(narrow_code(BP_F8E4M3FN, 1e30), 0x7eu);
  EXPECT_EQ(narrow_code(BP_F8E4M3FN, std::nan("")), 0x7fu);
  EXPECT_EQ(narrow_code(BP_F8E4M3FN, 0x1p-10), 0u);
  EXPECT_EQ(narrow_code(BP_F8E8M0FNU, -1e9), 0u) << "the smallest number";
  EXPECT_EQ(narrow_code(BP_F8E5M2, HUGE_VAL), 0x7bu);
  EXPECT_EQ(narrow_code(BP_F8E8M0FNU, 1.5), 128u);
  EXPECT_EQ(narrow_code(BP_F8E8M0FNU, 0), 0u);
  EXPECT_EQ(narrow_code(BP_F8E8M0FNU, std::nan("")), 255u);
}

// [DTYPE-2] The drawing in base.h.
TEST(Packed, ElementsLieFromTheLowBitsUp) {
  std::byte bytes[3] = {};
  for (uint64_t i = 0; i < 4; ++i) {
    // 0.125 * i is code i of f6e2m3, and -0.125 * i has the sign bit 0x20 as well.
    store_at_bit(BP_F6E2M3, -0.125 * static_cast<double>(i), bytes, 6 * i);
  }
  EXPECT_EQ(bytes[0], std::byte{0x20 | (0x21 << 6 & 0xff)});
  EXPECT_EQ(bytes[1], std::byte{(0x21 >> 2) | (0x22 << 4 & 0xff)});
  EXPECT_EQ(bytes[2], std::byte{(0x22 >> 4) | (0x23 << 2)});
  EXPECT_EQ(load_at_bit(BP_F6E2M3, bytes, 18).hi, -0.375);
  store_at_bit(BP_I4, -3.0, bytes, 4);
  EXPECT_EQ(bytes[0], std::byte{0xd0});
  EXPECT_EQ(load_at_bit(BP_I4, bytes, 4).hi, -3);
  EXPECT_EQ(load_at_bit(BP_U4, bytes, 4).hi, 13);
  store_at_bit(BP_I2, -2.0, bytes, 2);
  EXPECT_EQ(bytes[0], std::byte{0xd8});
  EXPECT_EQ(load_at_bit(BP_I2, bytes, 2).hi, -2);
  EXPECT_EQ(load_at_bit(BP_U2, bytes, 2).hi, 2);
}

}  // namespace
}  // namespace bp::conformance
