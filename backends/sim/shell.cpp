// The traits that tell the shell about this backend's devices and handles. The shell makes the
// table of devices, the guard, failures that tests order, graphs and the compiler from them.
#include <algorithm>
#include <utility>

#include "backends/sim/device.hpp"
#include "backends/sim/memory.hpp"
#include "backends/sim/options.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/capture_front.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/device_ops.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::sim {
namespace {

struct Traits : Cards<Instance, Device>, QueueHandles<Stream, Event, MemoryTraits> {
  static void memory_info(Device& d, uint64_t heap, uint64_t& free_bytes, uint64_t& total_bytes) {
    total_bytes = d.heap(heap).size_bytes;
    free_bytes = total_bytes - std::min(total_bytes, d.card().used_bytes(heap));
  }
  static void reset(Device& d) {
    d.card().reset(d);
    d.owner().captures->lose(reinterpret_cast<bp_device*>(&d));
    d.renew_default_stream();
  }
  static void set_option(Device& d, const char* key, const char* value) {
    d.set_option(key, value);
  }
  static TestFaults& faults_of(bp_stream* handle, const char* call) {
    return sim::stream_of(handle, call).lane->faults();
  }
  static FailingAllocation& allocations_of(Device& d) { return d.allocations(); }
  static void lose(Device& d) { d.card().lose(); }
  static bool is_in_use(const Device& d) { return d.is_in_use(); }
};

}  // namespace

constinit const bp_device_ops kDevices = DeviceOps<Traits>::table();
constinit const bp_device_guard_ops kGuard = DeviceGuard<Traits>::table();
constinit const bp_test_fault_ops kFaults = TestFaultOps<Traits>::table();

void put_captures(Instance& i) { offer_captures<Traits>(i); }

void make_compiler(Instance& i) {
  std::vector<const bp_kernel*> kernels;
  for (const bp_kernel& kernel : i.kernels) kernels.push_back(&kernel);
  for (const bp_kernel& kernel : i.program_kernels) kernels.push_back(&kernel);
  offer_compiler<Traits>(i, std::move(kernels), "backplane.sim 0.1.0, programs 1",
                         read_limits(*i.host), i.layouts.get(), false);
}

}  // namespace bp::sim
