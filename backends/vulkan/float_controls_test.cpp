#include "backends/vulkan/float_controls.hpp"

#include <gtest/gtest.h>

namespace bp::vulkan {
namespace {

using Words = std::vector<uint32_t>;

constexpr uint32_t word(uint32_t count, uint32_t opcode) { return count << 16 | opcode; }

// A module whose entry point, id 4, has no name, with a float type of each width.
Words module_of(std::initializer_list<uint32_t> widths) {
  Words words = {0x07230203,  0x10500, 0,           99, 0,  // The header.
                 word(2, 17), 1,       word(3, 14), 0,  1,  // Capability, memory model.
                 word(4, 15), 5,       4,           0,  word(6, 16),
                 4,           17,      1,           1,  1};  // Entry point, local size.
  for (const uint32_t width : widths) words.insert(words.end(), {word(3, 22), width, width});
  return words;
}

TEST(KeepSubnormals, AddsACapabilityAndAModeForEachWidth) {
  const Words kept = keep_subnormals(module_of({32, 64}), 16 | 32 | 64);
  Words wanted = module_of({32, 64});
  wanted.insert(wanted.begin() + 14, {word(4, 16), 4, 4459, 32, word(4, 16), 4, 4459, 64});
  wanted.insert(wanted.begin() + 5, {word(2, 17), 4464});
  EXPECT_EQ(kept, wanted);
}

TEST(KeepSubnormals, AsksOnlyForWhatTheDeviceHas) {
  const Words kept = keep_subnormals(module_of({32, 64}), 32);
  Words wanted = module_of({32, 64});
  wanted.insert(wanted.begin() + 14, {word(4, 16), 4, 4459, 32});
  wanted.insert(wanted.begin() + 5, {word(2, 17), 4464});
  EXPECT_EQ(kept, wanted);
}

TEST(KeepSubnormals, LeavesAModuleThatHasNothingToKeep) {
  EXPECT_EQ(keep_subnormals(module_of({32, 64}), 0), module_of({32, 64}));
  EXPECT_EQ(keep_subnormals(module_of({64}), 32), module_of({64}));
  EXPECT_EQ(keep_subnormals(module_of({}), 16 | 32 | 64), module_of({}));
}

TEST(PreservedWidths, AreThoseThatTheDeviceNames) {
  VkPhysicalDeviceFloatControlsProperties controls{
      .denormBehaviorIndependence = VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY,
      .shaderDenormPreserveFloat32 = VK_TRUE};
  EXPECT_EQ(preserved_widths(controls), 32u);
  controls.shaderDenormPreserveFloat64 = VK_TRUE;
  EXPECT_EQ(preserved_widths(controls), 96u);
  EXPECT_EQ(preserved_widths({}), 0u);
}

TEST(PreservedWidths, AreNoneIfOneModeIsForAllWidthsAndOneLacksIt) {
  VkPhysicalDeviceFloatControlsProperties controls{
      .denormBehaviorIndependence = VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE,
      .shaderDenormPreserveFloat32 = VK_TRUE};
  EXPECT_EQ(preserved_widths(controls), 0u);
  controls.shaderDenormPreserveFloat64 = VK_TRUE;
  EXPECT_EQ(preserved_widths(controls), 96u);
}

}  // namespace
}  // namespace bp::vulkan
