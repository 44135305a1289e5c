#include "backends/vulkan/float_controls.hpp"

#include <cstddef>

namespace bp::vulkan {
namespace {

// The numbers of SPIR-V that this file reads and writes.
constexpr uint32_t kEntryPoint = 15, kExecutionMode = 16, kCapability = 17, kTypeFloat = 22;
constexpr uint32_t kDenormPreserveMode = 4459, kDenormPreserveCapability = 4464;
constexpr size_t kHeaderWords = 5;

uint32_t first_word(uint32_t opcode, uint32_t word_count) { return word_count << 16 | opcode; }

// What keep_subnormals() finds in a module.
struct Found {
  FloatWidths widths = 0;    // Those of its float types.
  uint32_t entry_point = 0;  // The id of its function.
  size_t end_of_entry = 0;   // The word behind the entry point, where execution modes begin.
};

Found search(std::span<const uint32_t> words) {
  Found found;
  size_t next = kHeaderWords;
  while (next < words.size()) {
    const uint32_t opcode = words[next] & 0xffff, count = words[next] >> 16;
    if (count == 0 || count > words.size() - next) break;
    if (opcode == kEntryPoint && count > 2) {
      found.entry_point = words[next + 2];
      found.end_of_entry = next + count;
    }
    if (opcode == kTypeFloat && count > 2) found.widths |= words[next + 2];
    next += count;
  }
  return found;
}

}  // namespace

FloatWidths preserved_widths(const VkPhysicalDeviceFloatControlsProperties& controls) {
  FloatWidths widths = 0;
  if (controls.shaderDenormPreserveFloat16 == VK_TRUE) widths |= 16;
  if (controls.shaderDenormPreserveFloat32 == VK_TRUE) widths |= 32;
  if (controls.shaderDenormPreserveFloat64 == VK_TRUE) widths |= 64;
  // Such a device has one mode for all widths, and shaders compute in 32 and 64 bits.
  const bool has_one_mode =
      controls.denormBehaviorIndependence == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
  constexpr FloatWidths kComputed = 32 | 64;
  return has_one_mode && (widths & kComputed) != kComputed ? 0 : widths;
}

std::vector<uint32_t> keep_subnormals(std::span<const uint32_t> words, FloatWidths widths) {
  const Found found = search(words);
  std::vector<uint32_t> kept(words.begin(), words.end());
  if ((found.widths & widths) == 0 || found.end_of_entry == 0) return kept;
  std::vector<uint32_t> modes;
  for (const uint32_t width : {16u, 32u, 64u}) {
    if ((found.widths & widths & width) == 0) continue;
    modes.insert(modes.end(),
                 {first_word(kExecutionMode, 4), found.entry_point, kDenormPreserveMode, width});
  }
  kept.insert(kept.begin() + static_cast<ptrdiff_t>(found.end_of_entry), modes.begin(),
              modes.end());
  kept.insert(kept.begin() + kHeaderWords, {first_word(kCapability, 2), kDenormPreserveCapability});
  return kept;
}

}  // namespace bp::vulkan
