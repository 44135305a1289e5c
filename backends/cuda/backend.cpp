#include "backends/cuda/backend.hpp"

#include "backends/cuda/collective.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/engines.hpp"
#include "backends/cuda/stream.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/plugin.hpp"

namespace bp::cuda {

Instance::Instance(const bp_host* its_host, Driver its_driver)
    : BackendInstance(its_host, backend_table(this, "backplane.cuda", "0.1.0"),
                      {.devices = kDevices,
                       .allocator = kAllocator,
                       .streams = kStreams,
                       .events = kEvents,
                       .guard = &kGuard,
                       .semaphores = &kSemaphores}),
      driver(std::move(its_driver)),
      options(read_options(*its_host)) {
  engines = std::make_unique<Engines>(*host, options.libraries);
  collectives = std::make_unique<Collectives>(*this);
  process_groups = collectives->table();
  std::vector<std::string> reasons;
  for (const Site& site : find_sites(driver, options, reasons)) {
    cards.push_back(std::make_unique<Device>(*this, site));
  }
  for (const std::string& reason : reasons) {
    host->log_line(host->self, BP_LOG_WARNING, ("backplane.cuda: " + reason).c_str());
  }
  add_kernels(kernel_list());
  put_captures(*this);
  make_compiler(*this);
  make_layouts(*this);
}

bool Instance::wait_for_work(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  Executor& launcher = collectives->watch().launcher();
  do {  // Streams wait for calls of process groups, and these for streams.
    if (!executor.wait_idle(deadline.left_ns())) return false;
    if (!launcher.wait_idle(deadline.left_ns())) return false;
  } while (!executor.wait_idle(0));
  for (const std::unique_ptr<Device>& device : cards) {
    if (!device->settle(deadline.left_ns())) return false;
  }
  return true;
}

// Waits for running work, because its callbacks must run, and none may run after shutdown(). Aborts
// work that waits for an event which nobody can signal any more.
Instance::~Instance() {
  collectives.reset();
  compiler.reset();
  captures.reset();
  executor.wait_idle();
  for (const std::unique_ptr<Device>& device : cards) device->abandon_work();
  executor.wait_idle();
  for (const std::unique_ptr<Device>& device : cards) {
    guarded(*host, [&]() -> bp_status { return device->wait(UINT64_MAX) ? BP_OK : BP_TIMEOUT; });
  }
  executor.stop();
  for (const std::unique_ptr<Device>& device : cards) device->end_handles();
}

bp_status enter(const bp_entry_request* request, bp_entry_reply* out_reply, Driver (*driver)()) {
  return answer_entry("backplane.cuda", request, out_reply, [&](const bp_host& host) {
    return &(new Instance(&host, driver()))->backend;
  });
}

}  // namespace bp::cuda
