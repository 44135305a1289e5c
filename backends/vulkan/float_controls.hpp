// What a device does with subnormal numbers, and how a shader asks it to keep them.
//
// Vulkan lets a device take subnormal numbers for 0, and graphics cards do so, unless the shader
// has the execution mode DenormPreserve. Only some devices have this mode, so it is no part of the
// embedded shaders: it is added when a shader is loaded.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <span>
#include <vector>

namespace bp::vulkan {

// A set of widths of floats: the sum of some of 16, 32 and 64.
using FloatWidths = uint32_t;

// Returns the widths for which shaders may ask the device to keep subnormal numbers.
FloatWidths preserved_widths(const VkPhysicalDeviceFloatControlsProperties& controls);

// Returns the words of a SPIR-V module that keeps subnormal numbers in those of its float types
// that have one of these widths. The words must be those of a valid module with one entry point.
std::vector<uint32_t> keep_subnormals(std::span<const uint32_t> words, FloatWidths widths);

}  // namespace bp::vulkan
