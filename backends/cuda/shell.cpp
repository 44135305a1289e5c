// The traits that tell the shell about this backend's devices and handles. The shell makes the
// table of devices, graphs and the compiler from them. The guard uses CUDA's own current context.
#include <algorithm>

#include "backends/cuda/device.hpp"
#include "backends/cuda/graph.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream.hpp"
#include "backplane/shell/capture_front.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/device_ops.hpp"

namespace bp::cuda {
namespace {

// Returns the bytes that a pool keeps. They count as free, because the next allocation can use
// them.
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

struct Traits : Cards<Instance, Device>, QueueHandles<Stream, Event, MemoryTraits> {
  static void memory_info(Device& d, uint64_t heap, uint64_t& free_bytes, uint64_t& total_bytes) {
    total_bytes = d.heap(heap).size_bytes;
    if (heap != 0) {
      free_bytes = std::min(total_bytes, free_host_bytes());
      return;
    }
    const Current current(d);
    size_t free = 0, total = 0;
    check(d.driver(), d.driver().cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    total_bytes = total;
    free_bytes = std::min<uint64_t>(total, free + kept_by_pool(d));
  }

  // cudaDeviceReset() would end the context for everyone in the process who uses this device.
  static void reset(Device&) {
    refuse(BP_UNSUPPORTED,
           "device.reset: the primary context is shared with all CUDA of this process: end the "
           "process and start another");
  }
  static void set_option(Device&, const char* key, const char*) {
    refuse(BP_NOT_FOUND, "device.set_option: there is no option \"" + std::string(key) +
                             "\" that a device takes at run time");
  }

  static const void* queue_of(bp_stream* handle) {
    const Stream* const s = stream_of(handle);
    return s == nullptr ? nullptr : s->lane.get();
  }
  static void fail(bp_stream* handle, bp_status status, const std::string& text) {
    stream_of(handle)->lane->fail(status, text);
  }
  static bp_status replay(void* self, GraphInstance& graph, bp_stream* stream) {
    return cuda::replay(cuda::instance(self), graph, stream);
  }
};

// ---- The guard ----------------------------------------------------------------------------------

// Returns the device whose primary context is `context`, or NULL if it is not a device of this
// instance.
bp_device* device_with(const Instance& i, CUcontext context) {
  for (const std::unique_ptr<Device>& device : i.cards) {
    if (context != nullptr && device->has_context() && device->context() == context) {
      return reinterpret_cast<bp_device*>(device.get());
    }
  }
  return nullptr;
}

bp_status guard_exchange(void* self, bp_device* handle, bp_device** out_previous) {
  return entry<Instance>(self, [&](const Instance& i) -> bp_status {
    require(out_previous, "exchange: out_previous");
    CUcontext wanted = nullptr, previous = nullptr;
    if (handle != nullptr) wanted = Traits::any_device_of(i, handle, "exchange").context();
    check(i.driver, i.driver.cuCtxGetCurrent(&previous), "cuCtxGetCurrent");
    if (previous != wanted) check(i.driver, i.driver.cuCtxSetCurrent(wanted), "cuCtxSetCurrent");
    *out_previous = device_with(i, previous);
    return BP_OK;
  });
}

bp_status guard_is_initialized(void* self, bp_device* handle, uint32_t* out_is_initialized) {
  return entry<Instance>(self, [&](const Instance& i) -> bp_status {
    Device& d = Traits::any_device_of(i, handle, "is_initialized");
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

constinit const bp_device_ops kDevices = DeviceOps<Traits>::table();

constinit const bp_device_guard_ops kGuard{
    .struct_size = sizeof(bp_device_guard_ops),
    .struct_type = BP_STRUCT_DEVICE_GUARD_OPS,
    .exchange = guard_exchange,
    .is_initialized = guard_is_initialized,
};

void put_captures(Instance& i) { offer_captures<Traits>(i); }

void make_compiler(Instance& i) { offer_compiler<Traits>(i, "backplane.cuda 0.1.0, programs 1"); }

}  // namespace bp::cuda
