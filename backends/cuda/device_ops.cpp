// The tables of devices and of the guard.
#include <algorithm>

#include "backends/cuda/device.hpp"

namespace bp::cuda {
namespace {

bp_status device_probe(void* self, uint64_t* out_device_count) {
  return entry(self, [&](const Instance& i) -> bp_status {
    require(out_device_count, "device.probe: out_device_count");
    *out_device_count = i.cards.size();
    return BP_OK;
  });
}

bp_status device_enumerate(void* self, uint64_t capacity, bp_device** out_devices,
                           uint64_t* out_device_count) {
  return entry(self, [&](const Instance& i) -> bp_status {
    require(out_device_count, "device.enumerate: out_device_count");
    if (capacity > 0) require(out_devices, "device.enumerate: out_devices");
    for (size_t index = 0; index < std::min<uint64_t>(capacity, i.cards.size()); ++index) {
      out_devices[index] = reinterpret_cast<bp_device*>(i.cards[index].get());
    }
    *out_device_count = i.cards.size();
    return BP_OK;
  });
}

bp_status device_properties(void* self, bp_device* handle,
                            const bp_device_properties** out_properties) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "device.properties");
    require(out_properties, "device.properties: out_properties");
    *out_properties = &d.properties();
    return BP_OK;
  });
}

bp_status device_synchronize(void* self, bp_device* handle, uint64_t timeout_ns) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "device.synchronize");
    if (d.wait(timeout_ns)) return BP_OK;
    return i.fail(BP_TIMEOUT, "device.synchronize: the work did not end within " +
                                  std::to_string(timeout_ns) + " ns");
  });
}

// What a pool holds back counts as free: the next allocation has it.
uint64_t kept_by_pool(Device& d) {
  if (d.pool() == nullptr) return 0;
  uint64_t reserved = 0, used = 0;
  const Driver& driver = d.driver();
  check(driver,
        driver.cudaMemPoolGetAttribute(d.pool(), cudaMemPoolAttrReservedMemCurrent, &reserved),
        "cudaMemPoolGetAttribute");
  check(driver, driver.cudaMemPoolGetAttribute(d.pool(), cudaMemPoolAttrUsedMemCurrent, &used),
        "cudaMemPoolGetAttribute");
  return reserved - std::min(reserved, used);
}

bp_status device_memory_info(void* self, bp_device* handle, uint64_t heap_index,
                             uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "device.memory_info");
    require(out_free_bytes, "device.memory_info: out_free_bytes");
    require(out_total_bytes, "device.memory_info: out_total_bytes");
    if (heap_index >= Device::kHeapCount) {
      refuse(BP_INVALID_ARGUMENT, "device.memory_info: heap_index is " +
                                      std::to_string(heap_index) + ", and there are heaps 0 and 1");
    }
    size_t free_bytes = d.heap(heap_index).size_bytes, total_bytes = free_bytes;
    if (heap_index == 0) {
      const Current current(d);
      check(d.driver(), d.driver().cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
      free_bytes = std::min<size_t>(total_bytes, free_bytes + kept_by_pool(d));
    } else {
      free_bytes = std::min(total_bytes, free_host_bytes());
    }
    *out_free_bytes = free_bytes;
    *out_total_bytes = total_bytes;
    return BP_OK;
  });
}

// cudaDeviceReset() would end the context for everyone in the process who uses this device.
bp_status device_reset(void* self, bp_device* handle) {
  return entry(self, [&](const Instance& i) -> bp_status {
    any_device_of(i, handle, "device.reset");
    refuse(BP_UNSUPPORTED,
           "device.reset: the primary context is shared with all CUDA of this process: end the "
           "process and start another");
  });
}

bp_status device_set_option(void* self, bp_device* handle, const char* key, const char* value) {
  return entry(self, [&](const Instance& i) -> bp_status {
    device_of(i, handle, "device.set_option");
    require(key, "device.set_option: key");
    require(value, "device.set_option: value");
    refuse(BP_NOT_FOUND, "device.set_option: there is no option \"" + std::string(key) +
                             "\" that a device takes at run time");
  });
}

// ---- The guard ----------------------------------------------------------------------------------

// The device whose primary context `context` is; NULL for none of this instance.
bp_device* device_with(const Instance& i, CUcontext context) {
  for (const std::unique_ptr<Device>& device : i.cards) {
    if (context != nullptr && device->has_context() && device->context() == context) {
      return reinterpret_cast<bp_device*>(device.get());
    }
  }
  return nullptr;
}

bp_status guard_exchange(void* self, bp_device* handle, bp_device** out_previous) {
  return entry(self, [&](const Instance& i) -> bp_status {
    require(out_previous, "exchange: out_previous");
    CUcontext wanted = nullptr, previous = nullptr;
    if (handle != nullptr) wanted = any_device_of(i, handle, "exchange").context();
    check(i.driver, i.driver.cuCtxGetCurrent(&previous), "cuCtxGetCurrent");
    if (previous != wanted) check(i.driver, i.driver.cuCtxSetCurrent(wanted), "cuCtxSetCurrent");
    *out_previous = device_with(i, previous);
    return BP_OK;
  });
}

bp_status guard_is_initialized(void* self, bp_device* handle, uint32_t* out_is_initialized) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = any_device_of(i, handle, "is_initialized");
    require(out_is_initialized, "is_initialized: out_is_initialized");
    if (!d.is_open()) {  // CUDA was not asked for it yet.
      *out_is_initialized = 0;
      return BP_OK;
    }
    CUdevice device = 0;
    unsigned flags = 0;
    int is_active = 0;
    check(i.driver, i.driver.cuDeviceGet(&device, d.ordinal()), "cuDeviceGet");
    check(i.driver, i.driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active),
          "cuDevicePrimaryCtxGetState");
    *out_is_initialized = is_active != 0 ? 1 : 0;
    return BP_OK;
  });
}

}  // namespace

constinit const bp_device_ops kDevices{
    .struct_size = sizeof(bp_device_ops),
    .struct_type = BP_STRUCT_DEVICE_OPS,
    .probe = device_probe,
    .enumerate = device_enumerate,
    .properties = device_properties,
    .synchronize = device_synchronize,
    .memory_info = device_memory_info,
    .reset = device_reset,
    .set_option = device_set_option,
};

constinit const bp_device_guard_ops kGuard{
    .struct_size = sizeof(bp_device_guard_ops),
    .struct_type = BP_STRUCT_DEVICE_GUARD_OPS,
    .exchange = guard_exchange,
    .is_initialized = guard_is_initialized,
};

}  // namespace bp::cuda
