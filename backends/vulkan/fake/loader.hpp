// A Vulkan loader for tests. It forwards to the machine's own loader, and makes wrong what a test
// orders. It is a shared library with the loader's name; the plugin gets it because the test has
// already opened it.
//
// Rules:
//   Threads    Orders are written by fail_call(), or while no instance of the backend is alive.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <map>
#include <string>

namespace bp::vulkan::fake {

// The orders of a test. By default nothing is wrong.
struct Orders {
  uint32_t api_version = 0;     // The version of the devices, if not 0.
  std::string missing_feature;  // Such as "timelineSemaphore".
  bool has_no_compute = false;  // Queues can only draw.
  bool has_no_coherent = false;
  bool flushes = false;           // Devices are cards that take subnormal numbers for 0.
  bool has_no_functions = false;  // The loader is like one of Vulkan 1.0.
};

// The functions by which a test controls the fake.
struct Control {
  // Starts again with `orders`, and sets all counts to 0.
  void (*reset)(const Orders& orders);

  // Makes `count` calls of `name` return `result` and do nothing else. The first such call is the
  // `nth` call from now on, where the next call is number 1. After VK_ERROR_DEVICE_LOST, all
  // functions that wait or submit return it too, until a device is created.
  void (*fail_call)(const std::string& name, uint64_t nth, VkResult result, uint64_t count);

  // Returns how often each function that returns a VkResult was called since the reset.
  std::map<std::string, uint64_t> (*call_counts)();
};

// The name of the function that returns the control. It gets the path of the real loader, and
// returns NULL if it cannot open that.
constexpr const char* kControlName = "bp_fake_vulkan_control";
using GetControl = const Control*(const char* real_path);

}  // namespace bp::vulkan::fake
