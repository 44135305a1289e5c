#include "backends/vulkan/backend.hpp"

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/kernels/list.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/plugin.hpp"
#include "elementwise_list.hpp"

namespace bp::vulkan {
namespace {

// The most threads that run work. If more streams have work, they take turns.
constexpr size_t kMaxWorkers = 16;

std::vector<std::string> names_of(const std::vector<Physical>& found) {
  std::vector<std::string> names;
  names.reserve(found.size());
  for (const Physical& physical : found) names.push_back(physical.name);
  return names;
}

// All devices, or those that were chosen. Why there are not more is a line in the log.
void open_devices(Instance& i) {
  const std::vector<Physical>& found = i.survey.devices;
  for (const std::string& remark : i.survey.remarks) {
    i.host->log_line(i.host->self, BP_LOG_WARNING, remark.c_str());
  }
  i.options.devices.check(names_of(found));
  if (i.options.has_validation && !found.empty() && !i.survey.has_validation_layer) {
    refuse(BP_UNSUPPORTED, std::string("option validation: the layer ") + kValidationLayer +
                               " is not installed; install vulkan-validationlayers");
  }
  for (uint32_t k = 0; k < found.size(); ++k) {
    if (i.options.devices.has(k)) i.cards.push_back(std::make_unique<Device>(i, found[k]));
  }
}

}  // namespace

Instance::Instance(const bp_host* its_host)
    : BackendInstance(its_host, backend_table(this, "backplane.vulkan", "0.1.0"),
                      {.devices = kDevices,
                       .allocator = kAllocator,
                       .streams = kStreams,
                       .events = kEvents,
                       .guard = &kGuard,
                       .semaphores = &kSemaphores,
                       .faults = &kFaults}),
      options(read_options(*its_host)),
      survey(survey_machine()),
      executor(kMaxWorkers) {
  add_kernels(kElementwiseKernels);
  add_kernels(kKernels);
  open_devices(*this);
  put_captures(*this);
  make_compiler(*this);
}

bool Instance::wait_for_work(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  if (!executor.wait_idle(timeout_ns)) return false;
  for (const std::unique_ptr<Device>& device : cards) {
    if (!device->settle(deadline.left_ns())) return false;
  }
  return executor.wait_idle(deadline.left_ns());
}

// Waits for running work, and aborts work that waits for an event which nobody can signal any more.
Instance::~Instance() {
  compiler.reset();
  captures.reset();
  wait_for_work(UINT64_MAX);
  for (const std::unique_ptr<Device>& device : cards) device->abandon_work();
  wait_for_work(UINT64_MAX);
  // A loss that another instance reports schedules work, which the executor takes until it stops.
  for (const std::unique_ptr<Device>& device : cards) device->leave_card();
  executor.stop();
}

}  // namespace bp::vulkan

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return bp::answer_entry("backplane.vulkan", request, out_reply, [](const bp_host& host) {
    return &(new bp::vulkan::Instance(&host))->backend;
  });
}
