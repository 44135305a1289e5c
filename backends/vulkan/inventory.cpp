#include "backends/vulkan/inventory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "backplane/shell/boundary.hpp"

namespace bp::vulkan {
namespace {

// The property structs of the driver, linked for one query.
struct Properties {
  explicit Properties(const VulkanInstance& instance, VkPhysicalDevice device) {
    core.pNext = &identity;
    identity.pNext = &maintenance;
    maintenance.pNext = &subgroup;
    subgroup.pNext = &driver;
    driver.pNext = &floats;
    instance.GetPhysicalDeviceProperties2(device, &core);
  }
  Properties(const Properties&) = delete;

  VkPhysicalDeviceFloatControlsProperties floats{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES};
  VkPhysicalDeviceDriverProperties driver{.sType =
                                              VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
  VkPhysicalDeviceSubgroupProperties subgroup{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
  VkPhysicalDeviceMaintenance3Properties maintenance{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
  VkPhysicalDeviceIDProperties identity{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
  VkPhysicalDeviceProperties2 core{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
};

bool has_extension(const VulkanInstance& instance, VkPhysicalDevice device, const char* name) {
  uint32_t count = 0;
  check(instance.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr),
        "vkEnumerateDeviceExtensionProperties");
  std::vector<VkExtensionProperties> extensions(count);
  check(instance.EnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data()),
        "vkEnumerateDeviceExtensionProperties");
  return std::ranges::any_of(extensions, [&](const VkExtensionProperties& extension) {
    return std::strcmp(extension.extensionName, name) == 0;
  });
}

// Chooses a queue family that computes, preferably one that only computes and copies. Returns false
// if there is none.
bool choose_queue(const VulkanInstance& instance, VkPhysicalDevice device, Physical& p) {
  uint32_t count = 0;
  instance.GetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  instance.GetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  bool is_found = false;
  for (uint32_t k = 0; k < count; ++k) {
    const VkQueueFlags flags = families[k].queueFlags;
    if ((flags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    if (is_found && (flags & VK_QUEUE_GRAPHICS_BIT) != 0) continue;
    p.queue_family = k;
    p.timestamp_bits = families[k].timestampValidBits;
    is_found = true;
  }
  return is_found;
}

bp_heap_flags heap_flags(VkMemoryPropertyFlags flags) {
  bp_heap_flags ours = 0;
  if ((flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0) ours |= BP_HEAP_DEVICE_LOCAL;
  if ((flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0) ours |= BP_HEAP_HOST_VISIBLE;
  if ((flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0) {
    ours |= BP_HEAP_HOST_COHERENT | BP_HEAP_HOST_CONCURRENT;
  }
  if ((flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0) ours |= BP_HEAP_HOST_CACHED;
  return ours;
}

// Returns one heap for each set of flags, with device-local heaps first, and among those the larger
// ones, and the ones that the host reads fast. Of the memory types with the same flags it takes the
// largest.
std::vector<PhysicalHeap> read_heaps(const VulkanInstance& instance, VkPhysicalDevice device) {
  VkPhysicalDeviceMemoryProperties2 properties{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  instance.GetPhysicalDeviceMemoryProperties2(device, &properties);
  const VkPhysicalDeviceMemoryProperties& memory = properties.memoryProperties;
  constexpr VkMemoryPropertyFlags kUnfit =
      VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
      VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
  std::vector<PhysicalHeap> heaps;
  for (uint32_t type = 0; type < memory.memoryTypeCount; ++type) {
    const VkMemoryPropertyFlags flags = memory.memoryTypes[type].propertyFlags;
    if ((flags & kUnfit) != 0 || heap_flags(flags) == 0) continue;
    const uint32_t heap = memory.memoryTypes[type].heapIndex;
    const PhysicalHeap found{type, heap, memory.memoryHeaps[heap].size, heap_flags(flags)};
    const auto same = std::ranges::find(heaps, found.flags, &PhysicalHeap::flags);
    if (same == heaps.end()) {
      heaps.push_back(found);
    } else if (same->size_bytes < found.size_bytes) {
      *same = found;
    }
  }
  std::ranges::stable_sort(heaps, [](const PhysicalHeap& a, const PhysicalHeap& b) {
    const auto rank = [](const PhysicalHeap& heap) {
      const bool is_local = (heap.flags & BP_HEAP_DEVICE_LOCAL) != 0;
      return std::pair(is_local ? heap.size_bytes : 0,
                       is_local && (heap.flags & BP_HEAP_HOST_CACHED) != 0);
    };
    return rank(a) > rank(b);
  });
  return heaps;
}

std::string version_text(uint32_t version) {
  return std::to_string(VK_API_VERSION_MAJOR(version)) + "." +
         std::to_string(VK_API_VERSION_MINOR(version));
}

void copy_properties(const Properties& properties, Physical& p) {
  const VkPhysicalDeviceProperties& core = properties.core.properties;
  const VkPhysicalDeviceLimits& limits = core.limits;
  p.name = core.deviceName;
  p.driver = std::string(properties.driver.driverName) + " " + properties.driver.driverInfo;
  std::ranges::copy(properties.identity.deviceUUID, p.uuid.begin());
  std::ranges::copy(core.pipelineCacheUUID, p.cache_uuid.begin());
  p.vendor_id = core.vendorID;
  p.device_id = core.deviceID;
  p.type = core.deviceType;
  p.timestamp_period_ns = limits.timestampPeriod;
  p.subgroup_size = properties.subgroup.subgroupSize;
  p.subgroup_operations = properties.subgroup.supportedOperations;
  std::ranges::copy(limits.maxComputeWorkGroupCount, p.max_groups);
  p.max_shared_bytes = limits.maxComputeSharedMemorySize;
  p.max_invocations = limits.maxComputeWorkGroupInvocations;
  p.max_allocation_bytes = properties.maintenance.maxMemoryAllocationSize;
  p.max_allocation_count = limits.maxMemoryAllocationCount;
  p.non_coherent_atom_bytes = limits.nonCoherentAtomSize;
  p.storage_alignment_bytes = limits.minStorageBufferOffsetAlignment;
  p.max_storage_bytes = limits.maxStorageBufferRange;
  p.preserved_widths = preserved_widths(properties.floats);
}

// Fills `p`, or returns why the device cannot be used.
std::string read_physical(const VulkanInstance& instance, VkPhysicalDevice device, Physical& p) {
  VkPhysicalDeviceProperties2 version{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  instance.GetPhysicalDeviceProperties2(device, &version);
  p.name = version.properties.deviceName;
  if (version.properties.apiVersion < VK_API_VERSION_1_2) {
    return "its driver has Vulkan " + version_text(version.properties.apiVersion) +
           ", and 1.2 is needed; install a newer driver";
  }
  copy_properties(Properties(instance, device), p);

  VkPhysicalDeviceVulkan12Features v12{.sType =
                                           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan11Features v11{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
  VkPhysicalDeviceFeatures2 core{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                 .pNext = &v11};
  instance.GetPhysicalDeviceFeatures2(device, &core);
  const std::string missing = missing_features(core.features, v11, v12);
  if (!missing.empty()) return "it lacks " + missing;
  p.has_f64 = core.features.shaderFloat64 == VK_TRUE;
  p.has_f16 = v12.shaderFloat16 == VK_TRUE;
  p.has_i8 = v12.shaderInt8 == VK_TRUE;
  p.has_budget = has_extension(instance, device, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  p.has_push_descriptors = has_extension(instance, device, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  if (!choose_queue(instance, device, p)) return "it has no queue that computes";
  p.heaps = read_heaps(instance, device);
  const bool has_mapped = std::ranges::any_of(
      p.heaps, [](const PhysicalHeap& heap) { return (heap.flags & BP_HEAP_HOST_COHERENT) != 0; });
  if (!has_mapped) return "it has no memory that the host and the device see at once";
  return "";
}

}  // namespace

bool keeps_subnormals(const Physical& p) {
  const FloatWidths needed = p.has_f64 ? 32 | 64 : 32;
  return p.type == VK_PHYSICAL_DEVICE_TYPE_CPU || (p.preserved_widths & needed) == needed;
}

std::string missing_features(const VkPhysicalDeviceFeatures& core,
                             const VkPhysicalDeviceVulkan11Features& v11,
                             const VkPhysicalDeviceVulkan12Features& v12) {
  const struct {
    const char* name;
    VkBool32 has;
  } needed[] = {
      {"shaderInt64", core.shaderInt64},
      {"shaderInt16", core.shaderInt16},
      {"storageBuffer16BitAccess", v11.storageBuffer16BitAccess},
      {"storageBuffer8BitAccess", v12.storageBuffer8BitAccess},
      {"shaderInt8", v12.shaderInt8},
      {"bufferDeviceAddress", v12.bufferDeviceAddress},
      {"timelineSemaphore", v12.timelineSemaphore},
      {"scalarBlockLayout", v12.scalarBlockLayout},
  };
  std::string missing;
  for (const auto& feature : needed) {
    if (feature.has == VK_FALSE)
      missing += (missing.empty() ? "" : ", ") + std::string(feature.name);
  }
  return missing;
}

Survey survey_machine() {
  Survey survey;
  std::string reason;
  const std::shared_ptr<const Library> library = Library::open(reason);
  if (library == nullptr) {
    survey.remarks.push_back(reason);
    return survey;
  }
  try {
    survey.has_validation_layer = library->has_layer(kValidationLayer);
    const VulkanInstance instance(library, {});
    const std::vector<VkPhysicalDevice> handles = instance.physical_devices();
    if (handles.empty()) {
      survey.remarks.push_back(
          "the Vulkan loader finds no device; install a driver, such as mesa-vulkan-drivers");
    }
    for (uint32_t k = 0; k < handles.size(); ++k) {
      Physical p;
      p.index = k;
      const std::string refusal = read_physical(instance, handles[k], p);
      if (refusal.empty()) {
        survey.devices.push_back(std::move(p));
      } else {
        survey.remarks.push_back("device \"" + p.name + "\" is left out: " + refusal);
      }
    }
  } catch (const StatusError& e) {
    survey.remarks.push_back(std::string(e.what()) +
                             "; no driver can be used: is one installed, such as "
                             "mesa-vulkan-drivers?");
  }
  return survey;
}

VkPhysicalDevice find_physical(const VulkanInstance& instance, const Physical& physical) {
  const std::vector<VkPhysicalDevice> handles = instance.physical_devices();
  if (physical.index < handles.size()) {
    VkPhysicalDeviceIDProperties identity{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                           .pNext = &identity};
    instance.GetPhysicalDeviceProperties2(handles[physical.index], &properties);
    if (std::ranges::equal(identity.deviceUUID, physical.uuid)) return handles[physical.index];
  }
  throw StatusError(BP_DEVICE_LOST, "device \"" + physical.name + "\" is gone since it was found");
}

}  // namespace bp::vulkan
