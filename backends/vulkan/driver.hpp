// Vulkan as this backend calls it. The loader is opened at run time, so that the plugin also loads
// on a machine without it and gives the reason. Every function is called through a table.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bp::vulkan {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

// Returns the name of a result, such as "VK_ERROR_DEVICE_LOST", or its number.
std::string result_name(VkResult result);

// Throws StatusError if the result of `call` is below zero. VK_TIMEOUT and similar results pass.
void check(VkResult result, const char* call);

// The loader, libvulkan.so.1.
class Library {
 public:
  // Opens the loader. Returns NULL if there is none; `out_reason` then says so, and what to do.
  static std::shared_ptr<const Library> open(std::string& out_reason);
  Library(const Library&) = delete;
  ~Library();

  // Returns whether a layer of this name is installed. Throws StatusError.
  bool has_layer(const char* name) const;

  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
#define BP_VK_GLOBAL(name) PFN_vk##name name = nullptr;
#include "backends/vulkan/driver.def"

 private:
  Library() = default;

  void* handle_ = nullptr;
};

// The request for an instance.
struct InstanceRequest {
  bool has_validation = false;  // Includes checks of synchronisation.
  // Called with each message of the validation layers.
  void (*report)(void* user_data, const char* text) = nullptr;
  void* user_data = nullptr;
};

// A VkInstance and its functions.
class VulkanInstance {
 public:
  // Makes the instance. Throws StatusError.
  VulkanInstance(std::shared_ptr<const Library> library, const InstanceRequest& request);
  VulkanInstance(const VulkanInstance&) = delete;
  ~VulkanInstance();

  VkInstance handle() const { return handle_; }
  std::vector<VkPhysicalDevice> physical_devices() const;

#define BP_VK_INSTANCE(name) PFN_vk##name name = nullptr;
#include "backends/vulkan/driver.def"

 private:
  const std::shared_ptr<const Library> library_;
  InstanceRequest request_;
  VkInstance handle_ = nullptr;
  VkDebugUtilsMessengerEXT messenger_ = nullptr;
};

// The functions of one VkDevice.
struct DeviceFunctions {
#define BP_VK_DEVICE(name) PFN_vk##name name = nullptr;
#include "backends/vulkan/driver.def"
};

DeviceFunctions device_functions(const VulkanInstance& instance, VkDevice device);

}  // namespace bp::vulkan
