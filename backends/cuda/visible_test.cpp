#include "backends/cuda/visible.hpp"

#include <gtest/gtest.h>

namespace bp::cuda {
namespace {

using Places = std::vector<size_t>;

const std::vector<Listed> kAlike = {{"X", "GPU-aa10"}, {"X", "GPU-ab20"}, {"X", "GPU-bb30"}};
const std::vector<Listed> kMixed = {{"X", "GPU-aa10"}, {"Y", "GPU-ab20"}};

std::optional<Places> shown(const char* visible, const std::vector<Listed>& listed = kAlike) {
  return visible_devices(visible, false, listed);
}

TEST(VisibleDevices, AreThoseOfTheListInItsOrder) {
  EXPECT_EQ(shown("2,0"), (Places{2, 0}));
  EXPECT_EQ(shown(" 1 , 2 "), (Places{1, 2}));
  EXPECT_EQ(shown("GPU-ab20,0"), (Places{1, 0}));
  EXPECT_EQ(shown("GPU-b"), (Places{2}));
}

TEST(VisibleDevices, EndBeforeAnEntryThatNamesNone) {
  EXPECT_EQ(shown(""), Places());
  EXPECT_EQ(shown("-1"), Places());
  EXPECT_EQ(shown("NoDevFiles"), Places());
  EXPECT_EQ(shown("1,7,0"), (Places{1}));
  EXPECT_EQ(shown("1,,0"), (Places{1}));
  EXPECT_EQ(shown("1,GPU-a,0"), (Places{1})) << "two devices begin so";
}

TEST(VisibleDevices, AreNoneIfOneIsNamedTwice) {
  EXPECT_EQ(shown("1,1"), Places());
  EXPECT_EQ(shown("1,GPU-ab"), Places());
}

TEST(VisibleDevices, AreLeftToCudaIfNvmlCannotTell) {
  EXPECT_EQ(shown("MIG-8f2c"), std::nullopt);
  EXPECT_EQ(shown("1", kMixed), std::nullopt) << "CUDA may count the faster one first";
  EXPECT_EQ(visible_devices("1", true, kMixed), (Places{1}));
  EXPECT_EQ(shown("GPU-ab", kMixed), (Places{1}));
}

}  // namespace
}  // namespace bp::cuda
