// The physical devices of the machine as plain data. A probe reads them and leaves no Vulkan object
// open.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/driver.hpp"
#include "backends/vulkan/float_controls.hpp"
#include "backplane/device.h"

namespace bp::vulkan {

// A heap of the ABI, which stands for all memory types of the device with the same flags.
struct PhysicalHeap {
  uint32_t memory_type = 0;  // Index in VkPhysicalDeviceMemoryProperties.
  uint32_t vulkan_heap = 0;
  uint64_t size_bytes = 0;
  bp_heap_flags flags = 0;
};

struct Physical {
  std::string name, driver;
  std::array<uint8_t, 16> uuid{};
  uint32_t index = 0;  // In the loader's order.
  uint32_t vendor_id = 0, device_id = 0;
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
  uint32_t queue_family = 0;
  uint32_t timestamp_bits = 0;
  double timestamp_period_ns = 0;
  uint32_t subgroup_size = 0;
  VkSubgroupFeatureFlags subgroup_operations = 0;
  uint32_t max_groups[3]{};
  uint32_t max_shared_bytes = 0, max_invocations = 0;
  uint64_t max_allocation_bytes = 0;
  uint32_t max_allocation_count = 0;
  uint64_t non_coherent_atom_bytes = 1;
  uint64_t storage_alignment_bytes = 1;  // For descriptors, like the next one.
  uint64_t max_storage_bytes = 0;
  bool has_f64 = false, has_f16 = false, has_i8 = false;
  bool has_budget = false;  // The driver reports how much is free.
  bool has_push_descriptors = false;
  FloatWidths preserved_widths = 0;  // Shaders may ask to keep subnormal numbers of these.
  std::array<uint8_t, VK_UUID_SIZE> cache_uuid{};
  std::vector<PhysicalHeap> heaps;
};

struct Survey {
  std::vector<Physical> devices;
  std::vector<std::string> remarks;  // Why there are not more devices.
  bool has_validation_layer = false;
};

// Returns whether shaders keep subnormal numbers in all types in which they compute. Drivers on the
// host's processors do so unasked: lavapipe has no mode for it.
bool keeps_subnormals(const Physical& p);

// Returns the names of required features that the device lacks.
std::string missing_features(const VkPhysicalDeviceFeatures& core,
                             const VkPhysicalDeviceVulkan11Features& v11,
                             const VkPhysicalDeviceVulkan12Features& v12);

// Reads the devices of the machine, and closes Vulkan again. It does not throw if the machine lacks
// something.
Survey survey_machine();

// Returns the handle of `physical` in a VkInstance. Throws StatusError if the device is gone.
VkPhysicalDevice find_physical(const VulkanInstance& instance, const Physical& physical);

}  // namespace bp::vulkan
