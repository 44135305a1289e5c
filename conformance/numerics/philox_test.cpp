#include "conformance/numerics/philox.hpp"

#include <gtest/gtest.h>

namespace bp::conformance {
namespace {

// The known answers that were published with the generator.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, GivesEachElementBitsOfItsOwn) {
  EXPECT_EQ(element_bits(7, 1, 5), element_bits(7, 1, 5));
  EXPECT_NE(element_bits(7, 1, 5), element_bits(7, 1, 6));
  EXPECT_NE(element_bits(7, 1, 5), element_bits(7, 2, 5));
  EXPECT_NE(element_bits(7, 1, 5), element_bits(8, 1, 5));
}

}  // namespace
}  // namespace bp::conformance
