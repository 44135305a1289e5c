// The current device of a thread. Vulkan has none of its own, so it is kept here, for hosts that
// nest uses of devices.
#include <algorithm>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/entry.hpp"

namespace bp::vulkan {
namespace {

thread_local bp_device* current = nullptr;

bool is_device(const Instance& i, bp_device* handle) {
  return std::ranges::any_of(i.cards, [handle](const std::unique_ptr<Device>& device) {
    return reinterpret_cast<bp_device*>(device.get()) == handle;
  });
}

bp_status exchange(void* self, bp_device* device, bp_device** out_previous) {
  return entry(self, [&](const Instance& i) {
    require(out_previous, "exchange: out_previous");
    if (device != nullptr) static_cast<void>(any_device_of(i, device, "exchange", "device"));
    // The device of an instance that has ended is current no more.
    *out_previous = is_device(i, current) ? current : nullptr;
    current = device;
    return bp_status{BP_OK};
  });
}

bp_status is_initialized(void* self, bp_device* device, uint32_t* out_is_initialized) {
  return entry(self, [&](const Instance& i) {
    require(out_is_initialized, "is_initialized: out_is_initialized");
    const Device& d = any_device_of(i, device, "is_initialized", "device");
    *out_is_initialized = d.card().engine_if_open() != nullptr ? 1 : 0;
    return bp_status{BP_OK};
  });
}

}  // namespace

const bp_device_guard_ops kGuard{
    .struct_size = sizeof(bp_device_guard_ops),
    .struct_type = BP_STRUCT_DEVICE_GUARD_OPS,
    .exchange = exchange,
    .is_initialized = is_initialized,
};

}  // namespace bp::vulkan
