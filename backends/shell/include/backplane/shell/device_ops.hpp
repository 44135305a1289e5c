// The table of devices, and the device guard for backends whose driver has no current device.
//
//   constinit const bp_device_ops kDevices = DeviceOps<Traits>::table();
//   constinit const bp_device_guard_ops kGuard = DeviceGuard<Traits>::table();
//
// `Traits` describes the devices of a backend. It has these types and static members, of which
// Cards of lookup.hpp has the first six:
//   Instance                               the self of the tables; it has `host`
//   Device                                 has properties(), and wait(timeout_ns), which is false
//                                          if its work did not end in time; one that can be reset
//                                          has generation(), the number of its resets
//   device_count(instance)                 how many there are
//   device_at(instance, index)             the handle of one
//   device_of(instance, handle, call)      Device&; throws StatusError for a handle of no device of
//                                          the instance, and for a lost device
//   any_device_of(instance, handle, call)  the same, and takes a lost device
//   memory_info(device, heap_index, free_bytes, total_bytes)
//   reset(device)                          optional
//   set_option(device, key, value)         optional; throws StatusError for an option that does not
//                                          exist or fit
//   is_in_use(device)                      for the guard alone
#pragma once

#include <algorithm>
#include <string>

#include "backplane/device.h"
#include "backplane/shell/allocation.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp {

template <typename Traits>
class DeviceOps {
 public:
  static constexpr bp_device_ops table() {
    bp_device_ops ops{.struct_size = sizeof(bp_device_ops),
                      .struct_type = BP_STRUCT_DEVICE_OPS,
                      .probe = probe,
                      .enumerate = enumerate,
                      .properties = properties,
                      .synchronize = synchronize,
                      .memory_info = memory_info,
                      .generation = generation};
    if constexpr (requires(Device & d) { Traits::reset(d); }) ops.reset = reset;
    if constexpr (requires(Device & d, const char* text) { Traits::set_option(d, text, text); }) {
      ops.set_option = set_option;
    }
    return ops;
  }

 private:
  using Instance = typename Traits::Instance;
  using Device = typename Traits::Device;

  static bp_status probe(void* self, uint64_t* out_device_count) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      require(out_device_count, "device.probe: out_device_count");
      *out_device_count = Traits::device_count(i);
      return BP_OK;
    });
  }

  static bp_status enumerate(void* self, uint64_t capacity, bp_device** out_devices,
                             uint64_t* out_device_count) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      require(out_device_count, "device.enumerate: out_device_count");
      if (capacity > 0) require(out_devices, "device.enumerate: out_devices");
      const uint64_t count = Traits::device_count(i);
      for (uint64_t k = 0; k < std::min(capacity, count); ++k) {
        out_devices[k] = Traits::device_at(i, k);
      }
      *out_device_count = count;
      return BP_OK;
    });
  }

  static bp_status properties(void* self, bp_device* handle,
                              const bp_device_properties** out_properties) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "device.properties");
      require(out_properties, "device.properties: out_properties");
      *out_properties = &d.properties();
      return BP_OK;
    });
  }

  static bp_status synchronize(void* self, bp_device* handle, uint64_t timeout_ns) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "device.synchronize");
      if (!d.wait(timeout_ns)) {
        refuse_timeout("device.synchronize", timeout_ns);
      }
      Traits::device_of(i, handle, "device.synchronize");  // It may be lost by now.
      return BP_OK;
    });
  }

  static bp_status memory_info(void* self, bp_device* handle, uint64_t heap_index,
                               uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "device.memory_info");
      require(out_free_bytes, "device.memory_info: out_free_bytes");
      require(out_total_bytes, "device.memory_info: out_total_bytes");
      check_heap_index(heap_index, d.properties().heap_count, "device.memory_info");
      uint64_t free_bytes = 0, total_bytes = 0;
      Traits::memory_info(d, heap_index, free_bytes, total_bytes);
      *out_free_bytes = free_bytes;
      *out_total_bytes = total_bytes;
      return BP_OK;
    });
  }

  // A device without generation() is never reset.
  static bp_status generation(void* self, bp_device* handle, uint64_t* out_generation) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      const Device& d = Traits::any_device_of(i, handle, "device.generation");
      require(out_generation, "device.generation: out_generation");
      if constexpr (requires { d.generation(); }) {
        *out_generation = d.generation();
      } else {
        *out_generation = 0;
      }
      return BP_OK;
    });
  }

  static bp_status reset(void* self, bp_device* handle) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Traits::reset(Traits::any_device_of(i, handle, "device.reset"));
      return BP_OK;
    });
  }

  static bp_status set_option(void* self, bp_device* handle, const char* key, const char* value) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "device.set_option");
      require(key, "device.set_option: key");
      require(value, "device.set_option: value");
      Traits::set_option(d, key, value);
      return BP_OK;
    });
  }
};

// The table of device guards. It keeps the current device of each thread.
template <typename Traits>
class DeviceGuard {
 public:
  static constexpr bp_device_guard_ops table() {
    return {.struct_size = sizeof(bp_device_guard_ops),
            .struct_type = BP_STRUCT_DEVICE_GUARD_OPS,
            .exchange = exchange,
            .is_initialized = is_initialized};
  }

 private:
  using Instance = typename Traits::Instance;

  static bool is_device(const Instance& i, const bp_device* handle) {
    for (uint64_t k = 0; k < Traits::device_count(i); ++k) {
      if (Traits::device_at(i, k) == handle) return true;
    }
    return false;
  }

  static bp_status exchange(void* self, bp_device* device, bp_device** out_previous) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      require(out_previous, "exchange: out_previous");
      if (device != nullptr) static_cast<void>(Traits::any_device_of(i, device, "exchange"));
      // A device of an instance that has ended is not current any more.
      *out_previous = is_device(i, current) ? current : nullptr;
      current = device;
      return BP_OK;
    });
  }

  static bp_status is_initialized(void* self, bp_device* device, uint32_t* out_is_initialized) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      require(out_is_initialized, "is_initialized: out_is_initialized");
      auto& d = Traits::any_device_of(i, device, "is_initialized");
      *out_is_initialized = Traits::is_in_use(d) ? 1 : 0;
      return BP_OK;
    });
  }

  static inline thread_local bp_device* current = nullptr;
};

}  // namespace bp
