// The traits that tell the shell about this backend's device and handles. The shell makes the table
// of devices, the guard, failures that tests order, graphs and the compiler from them.
#include <algorithm>
#include <charconv>

#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/cpu/memory.hpp"
#include "backends/cpu/proc_file.hpp"
#include "backends/cpu/stream.hpp"
#include "backplane/shell/capture_front.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/device_ops.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp::cpu {
namespace {

struct Traits : Cards<Instance, Device>, QueueHandles<Stream, Event, MemoryTraits> {
  static void memory_info(Device& d, uint64_t, uint64_t& free_bytes, uint64_t& total_bytes) {
    const std::string text = first_value("/proc/meminfo", "MemAvailable");
    uint64_t available_kib = 0;
    std::from_chars(text.data(), text.data() + text.size(), available_kib);
    total_bytes = d.heap().size_bytes;
    free_bytes = std::min(total_bytes, available_kib * 1024);
  }
  static void set_option(Device& d, const char* key, const char* value) {
    if (std::string_view(key) != "threads") {
      refuse(BP_NOT_FOUND, "device.set_option: there is no option \"" + std::string(key) +
                               "\"; there is \"threads\"");
    }
    d.set_thread_count(read_thread_count(value));
  }
  static TestFaults& faults_of(bp_stream* handle, const char* call) {
    return cpu::stream_of(handle, call).lane->faults();
  }
  static FailingAllocation& allocations_of(Device& d) { return d.allocations(); }
  static void lose(Device&) {
    refuse(BP_UNSUPPORTED, "lose_device: the processors of the host are never lost");
  }
  static bool is_in_use(const Device& d) { return d.is_in_use(); }
};

}  // namespace

constinit const bp_device_ops kDevices = DeviceOps<Traits>::table();
constinit const bp_device_guard_ops kGuard = DeviceGuard<Traits>::table();
constinit const bp_test_fault_ops kFaults = TestFaultOps<Traits>::table();

void put_captures(Instance& i) { offer_captures<Traits>(i); }

void make_compiler(FullInstance& i) {
  offer_compiler<Traits>(i, "backplane.cpu 0.1.0, programs 1", {}, i.layouts.get());
}

}  // namespace bp::cpu
