// The traits that tell the shell about this backend's devices and handles. The shell makes the
// table of devices, the guard, failures that tests order, graphs and the compiler from them.
#include <algorithm>
#include <utility>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/memory.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/shell/capture_front.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/device_ops.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::vulkan {
namespace {

struct Traits : Cards<Instance, Device>, QueueHandles<Stream, Event, MemoryTraits> {
  static void memory_info(Device& d, uint64_t heap, uint64_t& free_bytes, uint64_t& total_bytes) {
    const std::shared_ptr<Engine> engine = d.card().engine();
    engine->recorder.collect();
    free_bytes = engine->context->free_bytes(d.physical().heaps[heap]);
    total_bytes = d.heap(heap).size_bytes;
  }
  static void reset(Device& d) {
    d.card().reset(d);
    d.owner().captures->lose(reinterpret_cast<bp_device*>(&d));
    d.renew_default_stream();
  }
  static TestFaults& faults_of(bp_stream* handle, const char* call) {
    return vulkan::stream_of(handle, call).lane->faults();
  }
  static FailingAllocation& allocations_of(Device& d) { return d.allocations(); }
  static void lose(Device& d) { d.card().lose(); }
  static bool is_in_use(const Device& d) { return d.card().engine_if_open() != nullptr; }
};

}  // namespace

constinit const bp_device_ops kDevices = DeviceOps<Traits>::table();
constinit const bp_device_guard_ops kGuard = DeviceGuard<Traits>::table();
constinit const bp_test_fault_ops kFaults = TestFaultOps<Traits>::table();

void put_captures(Instance& i) { offer_captures<Traits>(i); }

void make_compiler(Instance& i) {
  offer_compiler<Traits>(i, "backplane.vulkan 0.1.0, programs 1", {}, i.layouts.get());
}

}  // namespace bp::vulkan
