#include "backend.hpp"

#include <string>

#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/plugin.hpp"
#include "device.hpp"
#include "kernels/kernels.hpp"
#include "stream.hpp"

namespace acme_opencl {
namespace {

// The most threads that run work. If more streams have work, they take turns.
constexpr size_t kMaxWorkers = 16;

void open_devices(Instance& i) {
  const std::vector<DeviceInfo> found = find_devices();
  std::vector<std::string> names;
  for (const DeviceInfo& info : found) names.push_back(info.name);
  i.chosen.check(names);
  for (uint32_t k = 0; k < found.size(); ++k) {
    if (i.chosen.has(k)) i.cards.push_back(std::make_unique<Device>(i, k, found[k]));
  }
}

}  // namespace

Instance::Instance(const bp_host* its_host)
    : BackendInstance(its_host, bp::backend_table(this, "acme.opencl", "0.1.0"),
                      {.devices = kDevices,
                       .allocator = kAllocator,
                       .streams = kStreams,
                       .events = kEvents,
                       .guard = &kGuard,
                       .semaphores = &kSemaphores,
                       .faults = &kFaults}),
      chosen(*its_host),
      executors(kMaxWorkers) {
  add_kernels(all_kernels());
  open_devices(*this);
  put_captures(*this);
  make_compiler(*this);
}

// Waits for running work, and aborts work that waits for an event which nobody can signal any more.
Instance::~Instance() {
  compiler.reset();
  captures.reset();
  executors.wait_idle();
  for (const std::unique_ptr<Device>& device : cards) device->abandon_work();
  executors.wait_idle();
  // A loss that another instance reports schedules work, which the executors take until they stop.
  for (const std::unique_ptr<Device>& device : cards) device->leave_card();
  executors.stop();
}

}  // namespace acme_opencl

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return bp::answer_entry("acme.opencl", request, out_reply, [](const bp_host& host) {
    return &(new acme_opencl::Instance(&host))->backend;
  });
}
