#include "backends/vulkan/inventory.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace bp::vulkan {
namespace {

struct Features {
  VkPhysicalDeviceFeatures core{.shaderInt64 = VK_TRUE, .shaderInt16 = VK_TRUE};
  VkPhysicalDeviceVulkan11Features v11{.storageBuffer16BitAccess = VK_TRUE};
  VkPhysicalDeviceVulkan12Features v12{.storageBuffer8BitAccess = VK_TRUE,
                                       .shaderInt8 = VK_TRUE,
                                       .scalarBlockLayout = VK_TRUE,
                                       .timelineSemaphore = VK_TRUE,
                                       .bufferDeviceAddress = VK_TRUE};

  std::string missing() const { return missing_features(core, v11, v12); }
};

TEST(Physical, NamesTheFeaturesThatADeviceLacks) {
  Features features;
  EXPECT_EQ(features.missing(), "");
  features.v12.bufferDeviceAddress = VK_FALSE;
  EXPECT_EQ(features.missing(), "bufferDeviceAddress");
  features.core.shaderInt64 = VK_FALSE;
  EXPECT_EQ(features.missing(), "shaderInt64, bufferDeviceAddress");
}

// Each time it makes an instance, the loader reads the paths of drivers from the environment.
TEST(Physical, SaysThatThereIsNoDriver) {
  setenv("VK_ICD_FILENAMES", "/nonexistent/driver.json", 1);
  const Survey survey = survey_machine();
  unsetenv("VK_ICD_FILENAMES");
  EXPECT_TRUE(survey.devices.empty());
  ASSERT_EQ(survey.remarks.size(), 1u);
  EXPECT_NE(survey.remarks[0].find("install"), std::string::npos) << survey.remarks[0];
}

TEST(Physical, FindsTheSameDevicesEachTime) {
  const Survey first = survey_machine(), second = survey_machine();
  if (first.devices.empty()) GTEST_SKIP() << "no Vulkan device: " << first.remarks[0];
  ASSERT_EQ(first.devices.size(), second.devices.size());
  for (size_t k = 0; k < first.devices.size(); ++k) {
    EXPECT_EQ(first.devices[k].uuid, second.devices[k].uuid);
    EXPECT_EQ(first.devices[k].name, second.devices[k].name);
  }
}

TEST(Physical, ListsEachKindOfMemoryOnce) {
  for (const Physical& physical : survey_machine().devices) {
    std::set<bp_heap_flags> kinds;
    for (const PhysicalHeap& heap : physical.heaps) {
      EXPECT_TRUE(kinds.insert(heap.flags).second) << physical.name;
      EXPECT_GT(heap.size_bytes, 0u);
    }
    ASSERT_FALSE(physical.heaps.empty());
    EXPECT_NE(physical.heaps[0].flags & BP_HEAP_DEVICE_LOCAL, 0u) << physical.name;
  }
}

TEST(Physical, IsFoundAgainInAnotherInstance) {
  const Survey survey = survey_machine();
  if (survey.devices.empty()) GTEST_SKIP() << "no Vulkan device: " << survey.remarks[0];
  std::string reason;
  const VulkanInstance instance(Library::open(reason), {});
  EXPECT_NE(find_physical(instance, survey.devices[0]), nullptr);
  Physical gone = survey.devices[0];
  gone.uuid[3] = static_cast<uint8_t>(gone.uuid[3] ^ 1);
  EXPECT_ANY_THROW(find_physical(instance, gone));
}

}  // namespace
}  // namespace bp::vulkan
