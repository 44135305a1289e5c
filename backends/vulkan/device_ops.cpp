// The table of devices.
#include <algorithm>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/entry.hpp"

namespace bp::vulkan {
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
    for (uint64_t k = 0; k < std::min<uint64_t>(capacity, i.cards.size()); ++k) {
      out_devices[k] = reinterpret_cast<bp_device*>(i.cards[k].get());
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
    if (!d.wait(timeout_ns)) {
      return i.fail(BP_TIMEOUT, "device.synchronize: the work did not end within " +
                                    std::to_string(timeout_ns) + " ns");
    }
    device_of(i, handle, "device.synchronize");  // It may have been lost meanwhile.
    return BP_OK;
  });
}

bp_status device_memory_info(void* self, bp_device* handle, uint64_t heap_index,
                             uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = device_of(i, handle, "device.memory_info");
    require(out_free_bytes, "device.memory_info: out_free_bytes");
    require(out_total_bytes, "device.memory_info: out_total_bytes");
    if (heap_index >= d.heap_count()) {
      return i.fail(BP_INVALID_ARGUMENT, "device.memory_info: heap_index is " +
                                             std::to_string(heap_index) + ", and there are " +
                                             std::to_string(d.heap_count()) + " heaps");
    }
    const std::shared_ptr<Engine> engine = d.card().engine();
    engine->recorder.collect();
    *out_free_bytes = engine->context->free_bytes(d.physical().heaps[heap_index]);
    *out_total_bytes = d.heap(heap_index).size_bytes;
    return BP_OK;
  });
}

bp_status device_reset(void* self, bp_device* handle) {
  return entry(self, [&](const Instance& i) -> bp_status {
    Device& d = any_device_of(i, handle, "device.reset", "device");
    d.card().reset(d);
    d.properties();  // What was lent before shows the new generation.
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
};

}  // namespace bp::vulkan
