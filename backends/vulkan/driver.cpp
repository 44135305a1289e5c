#include "backends/vulkan/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "backplane/shell/boundary.hpp"

namespace bp::vulkan {
namespace {

constexpr const char* kLoaderName = "libvulkan.so.1";

bp_status status_of(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
      return BP_OUT_OF_MEMORY;
    case VK_ERROR_DEVICE_LOST:
      return BP_DEVICE_LOST;
    case VK_ERROR_INCOMPATIBLE_DRIVER:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_LAYER_NOT_PRESENT:
      return BP_UNSUPPORTED;
    default:
      return BP_INTERNAL;
  }
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data,
                                          void* user_data) {
  const auto& request = *static_cast<const InstanceRequest*>(user_data);
  request.report(request.user_data, data->pMessage);
  return VK_FALSE;
}

}  // namespace

std::string result_name(VkResult result) {
  switch (result) {
    case VK_TIMEOUT:
      return "VK_TIMEOUT";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
      return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED:
      return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_LAYER_NOT_PRESENT:
      return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "VK_ERROR_TOO_MANY_OBJECTS";
    case VK_ERROR_INVALID_EXTERNAL_HANDLE:
      return "VK_ERROR_INVALID_EXTERNAL_HANDLE";
    default:
      return "VkResult " + std::to_string(result);
  }
}

void check(VkResult result, const char* call) {
  if (result >= 0) return;
  throw StatusError(status_of(result), std::string(call) + " failed: " + result_name(result));
}

// ---- Library ------------------------------------------------------------------------------------

std::shared_ptr<const Library> Library::open(std::string& out_reason) {
  std::shared_ptr<Library> library(new Library);
  library->handle_ = dlopen(kLoaderName, RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) {
    const char* const text = dlerror();
    out_reason = std::string("there is no Vulkan loader (") + (text == nullptr ? "" : text) +
                 "); install libvulkan1 or the driver of the device";
    return nullptr;
  }
  library->get_instance_proc_addr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library->handle_, "vkGetInstanceProcAddr"));
  bool is_complete = library->get_instance_proc_addr != nullptr;
#define BP_VK_GLOBAL(name)                                            \
  if (is_complete) {                                                  \
    library->name = reinterpret_cast<PFN_vk##name>(                   \
        library->get_instance_proc_addr(VK_NULL_HANDLE, "vk" #name)); \
    is_complete = library->name != nullptr;                           \
  }
#include "backends/vulkan/driver.def"
  if (is_complete) return library;
  out_reason = std::string(kLoaderName) + " lacks functions of Vulkan 1.2; install a newer loader";
  return nullptr;
}

bool Library::has_layer(const char* name) const {
  uint32_t count = 0;
  check(EnumerateInstanceLayerProperties(&count, nullptr), "vkEnumerateInstanceLayerProperties");
  std::vector<VkLayerProperties> layers(count);
  check(EnumerateInstanceLayerProperties(&count, layers.data()),
        "vkEnumerateInstanceLayerProperties");
  return std::ranges::any_of(layers, [&](const VkLayerProperties& layer) {
    return std::strcmp(layer.layerName, name) == 0;
  });
}

Library::~Library() {
  if (handle_ != nullptr) dlclose(handle_);
}

// ---- VulkanInstance -----------------------------------------------------------------------------

VulkanInstance::VulkanInstance(std::shared_ptr<const Library> library,
                               const InstanceRequest& request)
    : library_(std::move(library)), request_(request) {
  const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                      .pApplicationName = "backplane",
                                      .apiVersion = VK_API_VERSION_1_2};
  const VkValidationFeatureEnableEXT checks[] = {
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  const VkValidationFeaturesEXT validation{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                           .enabledValidationFeatureCount = std::size(checks),
                                           .pEnabledValidationFeatures = checks};
  const VkDebugUtilsMessengerCreateInfoEXT messages{
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .pNext = &validation,
      .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT |
                         VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                     VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
      .pfnUserCallback = on_message,
      .pUserData = &request_};
  const char* const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const uint32_t layers = request.has_validation ? 1 : 0;
  const VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                  .pNext = request.has_validation ? &messages : nullptr,
                                  .pApplicationInfo = &application,
                                  .enabledLayerCount = layers,
                                  .ppEnabledLayerNames = &kValidationLayer,
                                  .enabledExtensionCount = layers,
                                  .ppEnabledExtensionNames = &extension};
  check(library_->CreateInstance(&info, nullptr, &handle_), "vkCreateInstance");
#define BP_VK_INSTANCE(name) \
  name = reinterpret_cast<PFN_vk##name>(library_->get_instance_proc_addr(handle_, "vk" #name));
#include "backends/vulkan/driver.def"
  if (!request.has_validation) return;
  const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
      library_->get_instance_proc_addr(handle_, "vkCreateDebugUtilsMessengerEXT"));
  VkDebugUtilsMessengerCreateInfoEXT alone = messages;
  alone.pNext = nullptr;
  const VkResult result = create(handle_, &alone, nullptr, &messenger_);
  if (result != VK_SUCCESS) DestroyInstance(handle_, nullptr);
  check(result, "vkCreateDebugUtilsMessengerEXT");
}

VulkanInstance::~VulkanInstance() {
  if (messenger_ != nullptr) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        library_->get_instance_proc_addr(handle_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(handle_, messenger_, nullptr);
  }
  DestroyInstance(handle_, nullptr);
}

std::vector<VkPhysicalDevice> VulkanInstance::physical_devices() const {
  uint32_t count = 0;
  check(EnumeratePhysicalDevices(handle_, &count, nullptr), "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> devices(count);
  check(EnumeratePhysicalDevices(handle_, &count, devices.data()), "vkEnumeratePhysicalDevices");
  devices.resize(count);
  return devices;
}

DeviceFunctions device_functions(const VulkanInstance& instance, VkDevice device) {
  DeviceFunctions functions;
#define BP_VK_DEVICE(name) \
  functions.name = reinterpret_cast<PFN_vk##name>(instance.GetDeviceProcAddr(device, "vk" #name));
#include "backends/vulkan/driver.def"
  return functions;
}

}  // namespace bp::vulkan
