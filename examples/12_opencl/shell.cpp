// The traits that tell the shell about this backend's devices and handles. The shell makes the
// table of devices, the guard, failures that tests order, graphs and the compiler from them.
#include <functional>

#include "backend.hpp"
#include "backplane/shell/capture_front.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/device_ops.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/test_fault.hpp"
#include "device.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace acme_opencl {
namespace {

struct Traits : bp::Cards<Instance, Device>, bp::QueueHandles<Stream, Event, MemoryTraits> {
  static void memory_info(Device& d, uint64_t, uint64_t& free_bytes, uint64_t& total_bytes) {
    total_bytes = d.heap().size_bytes;
    free_bytes = d.card().is_open() ? d.card().context()->free_bytes() : total_bytes;
  }
  static void reset(Device& d) {
    d.card().reset(d);
    d.owner().captures->lose(reinterpret_cast<bp_device*>(&d));
    d.renew_default_stream();
  }
  static bp::TestFaults& faults_of(bp_stream* handle, const char* call) {
    return acme_opencl::stream_of(handle, call).queue->faults();
  }
  static bp::FailingAllocation& allocations_of(Device& d) { return d.allocations(); }
  static void lose(Device& d) { d.card().lose(); }
  static bool is_in_use(const Device& d) { return d.is_in_use(); }
  static void fail(bp_stream* handle, bp_status status, const std::string& text) {
    static_cast<void>(stream_of(handle)->queue->run_behind([=](const bp::Outcome& before) {
      if (before.status == BP_OK) throw bp::StatusError(status, text);
    }));
  }
};

}  // namespace

constinit const bp_device_ops kDevices = bp::DeviceOps<Traits>::table();
constinit const bp_device_guard_ops kGuard = bp::DeviceGuard<Traits>::table();
constinit const bp_test_fault_ops kFaults = bp::TestFaultOps<Traits>::table();

void put_captures(Instance& i) { bp::offer_captures<Traits>(i); }

void make_compiler(Instance& i) {
  bp::offer_compiler<Traits>(i, "acme.opencl 0.1.0, programs 1", {}, i.layouts.get());
}

}  // namespace acme_opencl
