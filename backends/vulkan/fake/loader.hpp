// A Vulkan loader for tests: the machine's own, with what a test orders made wrong. It is a shared
// library of the loader's name, which the plugin meets because the test has opened it before.
//
// Rules:
//   Threads    Orders are written while no instance of the backend is alive, or by fail_call().
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <map>
#include <string>

namespace bp::vulkan::fake {

// What is wrong; nothing by default.
struct Orders {
  uint32_t api_version = 0;     // Of the devices, if not 0.
  std::string missing_feature;  // Such as "timelineSemaphore".
  bool has_no_compute = false;  // Queues only draw.
  bool has_no_coherent = false;
  bool has_no_functions = false;  // As a loader of Vulkan 1.0 has not.
};

// The calls of the functions by which the fake is told; those that a test makes.
struct Control {
  // Begins anew: nothing is wrong, no call is counted.
  void (*reset)(const Orders& orders);

  // Makes `count` calls of `name` return `result`, from the `nth` from now on, the first being 1;
  // nothing else happens in them. VK_ERROR_DEVICE_LOST is returned by what waits or submits from
  // then on, until a device is created.
  void (*fail_call)(const std::string& name, uint64_t nth, VkResult result, uint64_t count);

  // How often each function that returns a VkResult was called since the reset.
  std::map<std::string, uint64_t> (*call_counts)();
};

// The function that gives the control, by this name; it is told where the real loader is, and
// returns NULL if that cannot be opened.
constexpr const char* kControlName = "bp_fake_vulkan_control";
using GetControl = const Control*(const char* real_path);

}  // namespace bp::vulkan::fake
