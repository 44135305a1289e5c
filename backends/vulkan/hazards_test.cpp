#include "backends/vulkan/hazards.hpp"

#include <gtest/gtest.h>

#include <array>

namespace bp::vulkan {
namespace {

bool meets(AddressRange first, AddressRange second) {
  Hazards hazards;
  hazards.add(std::array{first});
  return hazards.meet(std::array{second});
}

TEST(Hazards, AreWritesThatMeetOtherUses) {
  EXPECT_TRUE(meets({100, 200, true}, {150, 160, false}));
  EXPECT_TRUE(meets({100, 200, false}, {150, 160, true}));
  EXPECT_TRUE(meets({100, 200, true}, {100, 200, true}));
  EXPECT_FALSE(meets({100, 200, false}, {150, 160, false})) << "both only read";
}

TEST(Hazards, AreNotBetweenNeighbours) {
  EXPECT_FALSE(meets({100, 200, true}, {200, 300, true}));
  EXPECT_FALSE(meets({200, 300, true}, {100, 200, true}));
  EXPECT_TRUE(meets({100, 201, true}, {200, 300, true}));
}

TEST(Hazards, AreNoneWithNoBytes) {
  EXPECT_FALSE(meets({150, 150, true}, {100, 200, true}));
  EXPECT_FALSE(meets({100, 200, true}, {150, 150, true}));
}

TEST(Hazards, EndWithABarrier) {
  Hazards hazards;
  hazards.add(std::array{AddressRange{100, 200, true}});
  hazards.clear();
  EXPECT_FALSE(hazards.meet(std::array{AddressRange{100, 200, true}}));
}

TEST(Hazards, AskForABarrierBeforeTheyAreTooMany) {
  Hazards hazards;
  uint64_t count = 0;
  for (; !hazards.is_full(); ++count) {
    hazards.add(std::array{AddressRange{100 * count, 100 * count + 50, true}});
    ASSERT_LT(count, 10'000u);
  }
  EXPECT_GT(count, 16u);
}

}  // namespace
}  // namespace bp::vulkan
