// Wraps each function that the backend uses. A wrapper counts the call, fails if a test ordered it,
// calls the real function, and changes the result as ordered.
#include "backends/vulkan/fake/loader.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string_view>
#include <type_traits>

namespace bp::vulkan::fake {
namespace {

struct State {
  std::mutex mutex;
  Orders orders;
  std::string failing;
  uint64_t calls_before = 0, failing_calls = 0;
  VkResult result = VK_SUCCESS;
  bool is_lost = false;
  std::map<std::string, uint64_t> counts;
  PFN_vkGetInstanceProcAddr get_instance_proc_addr = nullptr;
  PFN_vkGetDeviceProcAddr get_device_proc_addr = nullptr;
  PFN_vkDeviceWaitIdle wait_idle = nullptr;
  VkDevice device = nullptr;  // The latest device.
};

State state;

// Returns whether the function fails on a lost device.
bool is_of_work(std::string_view name) {
  for (const char* each : {"QueueSubmit", "WaitSemaphores", "GetSemaphoreCounterValue",
                           "SignalSemaphore", "DeviceWaitIdle", "GetQueryPoolResults"}) {
    if (name == each) return true;
  }
  return false;
}

// Counts a call. Returns the result with which the call fails, or VK_SUCCESS if the call is to be
// made.
VkResult strike(const char* name) {
  const std::lock_guard lock(state.mutex);
  ++state.counts[name];
  const bool is_ordered = name == state.failing && state.failing_calls > 0;
  if (is_ordered && state.calls_before > 0) {
    --state.calls_before;
  } else if (is_ordered) {
    --state.failing_calls;
    if (state.result != VK_ERROR_DEVICE_LOST) return state.result;
    // Real work must end first, because what it uses may be destroyed once the device is lost.
    state.is_lost = state.device != nullptr;
    if (state.is_lost) state.wait_idle(state.device);
    return state.result;
  }
  if (std::strcmp(name, "CreateDevice") == 0) state.is_lost = false;
  return state.is_lost && is_of_work(name) ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

// ---- What is made wrong -------------------------------------------------------------------------

// Clears the missing feature in a struct, which it finds by the name of the member.
void take_feature(VkPhysicalDeviceFeatures2& features) {
  const std::string& name = state.orders.missing_feature;
  const auto take = [&](const char* member, VkBool32& value) {
    if (name == member) value = VK_FALSE;
  };
  take("shaderInt64", features.features.shaderInt64);
  take("shaderInt16", features.features.shaderInt16);
  for (auto* next = static_cast<VkBaseOutStructure*>(features.pNext); next != nullptr;
       next = next->pNext) {
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES) {
      auto& v11 = *reinterpret_cast<VkPhysicalDeviceVulkan11Features*>(next);
      take("storageBuffer16BitAccess", v11.storageBuffer16BitAccess);
    }
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) {
      auto& v12 = *reinterpret_cast<VkPhysicalDeviceVulkan12Features*>(next);
      take("storageBuffer8BitAccess", v12.storageBuffer8BitAccess);
      take("shaderInt8", v12.shaderInt8);
      take("bufferDeviceAddress", v12.bufferDeviceAddress);
      take("timelineSemaphore", v12.timelineSemaphore);
      take("scalarBlockLayout", v12.scalarBlockLayout);
    }
  }
}

void change(VkPhysicalDevice, VkPhysicalDeviceProperties2* properties) {
  if (state.orders.api_version != 0) properties->properties.apiVersion = state.orders.api_version;
  if (!state.orders.flushes) return;
  properties->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  for (auto* next = static_cast<VkBaseOutStructure*>(properties->pNext); next != nullptr;
       next = next->pNext) {
    if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES) {
      auto& controls = *reinterpret_cast<VkPhysicalDeviceFloatControlsProperties*>(next);
      controls.shaderDenormPreserveFloat32 = controls.shaderDenormPreserveFloat64 = VK_FALSE;
    }
  }
}

void change(VkPhysicalDevice, VkPhysicalDeviceFeatures2* features) { take_feature(*features); }

void change(VkPhysicalDevice, uint32_t* count, VkQueueFamilyProperties* families) {
  for (uint32_t k = 0; families != nullptr && k < *count; ++k) {
    if (state.orders.has_no_compute) families[k].queueFlags = VK_QUEUE_GRAPHICS_BIT;
  }
}

void change(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2* properties) {
  VkPhysicalDeviceMemoryProperties& memory = properties->memoryProperties;
  for (uint32_t k = 0; state.orders.has_no_coherent && k < memory.memoryTypeCount; ++k) {
    memory.memoryTypes[k].propertyFlags &=
        ~static_cast<VkMemoryPropertyFlags>(VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  }
}

void change(VkPhysicalDevice, const VkDeviceCreateInfo*, const VkAllocationCallbacks*,
            VkDevice* device) {
  const std::lock_guard lock(state.mutex);
  state.device = *device;
}

void change(VkDevice device, const VkAllocationCallbacks*) {
  const std::lock_guard lock(state.mutex);
  if (state.device == device) state.device = nullptr;
}

// ---- Wrappers -----------------------------------------------------------------------------------

enum Id {
#define BP_VK_GLOBAL(name) kId##name,
#define BP_VK_INSTANCE(name) kId##name,
#define BP_VK_DEVICE(name) kId##name,
#include "backends/vulkan/driver.def"
  kIdCount
};

constexpr std::string_view kNames[] = {
#define BP_VK_GLOBAL(name) #name,
#define BP_VK_INSTANCE(name) #name,
#define BP_VK_DEVICE(name) #name,
#include "backends/vulkan/driver.def"
};

template <Id kId, typename Function>
struct Wrapper;

template <Id kId, typename Result, typename... Args>
struct Wrapper<kId, Result(VKAPI_PTR*)(Args...)> {
  static inline Result(VKAPI_PTR* real)(Args...) = nullptr;

  static VKAPI_ATTR Result VKAPI_CALL call(Args... args) {
    if constexpr (std::is_same_v<Result, VkResult>) {
      const VkResult failed = strike(kNames[kId].data());
      if (failed != VK_SUCCESS) return failed;
    }
    if constexpr (kId == kIdDestroyDevice) change(args...);
    if constexpr (std::is_void_v<Result>) {
      real(args...);
      after(args...);
    } else {
      const Result result = real(args...);
      if constexpr (kId == kIdCreateDevice) {
        if (result == VK_SUCCESS) change(args...);
      }
      return result;
    }
  }

 private:
  static void after(Args... args) {
    if constexpr (kId == kIdGetPhysicalDeviceProperties2 || kId == kIdGetPhysicalDeviceFeatures2 ||
                  kId == kIdGetPhysicalDeviceMemoryProperties2 ||
                  kId == kIdGetPhysicalDeviceQueueFamilyProperties) {
      change(args...);
    }
  }
};

template <Id kId, typename Function>
PFN_vkVoidFunction wrap_as(PFN_vkVoidFunction real) {
  Wrapper<kId, Function>::real = reinterpret_cast<Function>(real);
  return reinterpret_cast<PFN_vkVoidFunction>(Wrapper<kId, Function>::call);
}

constexpr PFN_vkVoidFunction (*kWrap[])(PFN_vkVoidFunction) = {
#define BP_VK_GLOBAL(name) wrap_as<kId##name, PFN_vk##name>,
#define BP_VK_INSTANCE(name) wrap_as<kId##name, PFN_vk##name>,
#define BP_VK_DEVICE(name) wrap_as<kId##name, PFN_vk##name>,
#include "backends/vulkan/driver.def"
};

PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device, const char* name);

// Returns the wrapper of `real`, or `real` if it has none.
PFN_vkVoidFunction wrap(std::string_view name, PFN_vkVoidFunction real) {
  if (real == nullptr) return nullptr;
  name.remove_prefix(2);  // It removes "vk".
  if (name == "GetDeviceProcAddr") {
    state.get_device_proc_addr = reinterpret_cast<PFN_vkGetDeviceProcAddr>(real);
    return reinterpret_cast<PFN_vkVoidFunction>(get_device_function);
  }
  const auto* const found = std::ranges::find(kNames, name);
  return found == std::end(kNames) ? real : kWrap[found - kNames](real);
}

PFN_vkVoidFunction VKAPI_CALL get_device_function(VkDevice device, const char* name) {
  const PFN_vkVoidFunction real = state.get_device_proc_addr(device, name);
  if (std::strcmp(name, "vkDeviceWaitIdle") == 0) {
    state.wait_idle = reinterpret_cast<PFN_vkDeviceWaitIdle>(real);
  }
  return wrap(name, real);
}

// ---- Control ------------------------------------------------------------------------------------

void reset(const Orders& orders) {
  const std::lock_guard lock(state.mutex);
  state.orders = orders;
  state.failing.clear();
  state.failing_calls = 0;
  state.is_lost = false;
  state.counts.clear();
}

void fail_call(const std::string& name, uint64_t nth, VkResult result, uint64_t count) {
  const std::lock_guard lock(state.mutex);
  state.failing = name;
  state.calls_before = nth == 0 ? 0 : nth - 1;
  state.failing_calls = nth == 0 ? 0 : count;
  state.result = result;
}

std::map<std::string, uint64_t> call_counts() {
  const std::lock_guard lock(state.mutex);
  return state.counts;
}

constexpr Control kControl{reset, fail_call, call_counts};

}  // namespace
}  // namespace bp::vulkan::fake

namespace fake = bp::vulkan::fake;

extern "C" {

__attribute__((visibility("default"))) const fake::Control* bp_fake_vulkan_control(
    const char* real_path) {
  void* const library = dlopen(real_path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  fake::state.get_instance_proc_addr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  return fake::state.get_instance_proc_addr == nullptr ? nullptr : &fake::kControl;
}

// NOLINTBEGIN(readability-identifier-naming): the name that loaders have.
__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  if (fake::state.orders.has_no_functions && std::strcmp(name, "vkCreateInstance") == 0) {
    return nullptr;
  }
  return fake::wrap(name, fake::state.get_instance_proc_addr(instance, name));
}
// NOLINTEND(readability-identifier-naming)
}
