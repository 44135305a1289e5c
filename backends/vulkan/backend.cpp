#include "backends/vulkan/backend.hpp"

#include <algorithm>
#include <iterator>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/kernels/list.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/layout.hpp"
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

// ---- Devices that take subnormal numbers for 0 --------------------------------------------------

constexpr bp_numerics kFlushing = {.struct_size = sizeof(bp_numerics),
                                   .struct_type = BP_STRUCT_NUMERICS,
                                   .flush = BP_FLUSH_INPUTS | BP_FLUSH_OUTPUTS};

// Returns whether the kernels of an op handle the bits of elements and no floats, so that every
// device keeps subnormal numbers.
bool handles_bits(uint32_t op) {
  constexpr uint32_t kOps[] = {
      BP_OP_FILL, BP_OP_WHERE, BP_OP_CAT,  BP_OP_GATHER,  BP_OP_INDEX_SELECT, BP_OP_EMBEDDING,
      BP_OP_SORT, BP_OP_TOPK,  BP_OP_NEG,  BP_OP_ABS,     BP_OP_RELU,         BP_OP_MAXIMUM,
      BP_OP_COPY, BP_OP_AMAX,  BP_OP_AMIN, BP_OP_MINIMUM, BP_OP_MAX_POOL};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

// Returns the devices that keep subnormal numbers, or those that do not.
std::vector<bp_device*> devices_that(bool keep, const Instance& i) {
  std::vector<bp_device*> devices;
  for (const std::unique_ptr<Device>& device : i.cards) {
    if (keeps_subnormals(device->physical()) == keep) {
      devices.push_back(reinterpret_cast<bp_device*>(device.get()));
    }
  }
  return devices;
}

// Makes the kernels of the devices that do not keep them, if there are any.
void declare_flushing(Instance& i) {
  if (devices_that(false, i).empty()) return;
  i.flushing_kernels = i.kernels;
  for (bp_kernel& kernel : i.flushing_kernels) {
    if (!handles_bits(kernel.op)) kernel.numerics = &kFlushing;
  }
  i.offers_kernels = false;  // register_tables() adds both kinds.
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
  declare_flushing(*this);
  put_captures(*this);
  make_layouts(*this);
  make_compiler(*this);
}

bp_status Instance::register_tables(const bp_registrar* registrar) const {
  const bp_status status = BackendInstance::register_tables(registrar);
  if (status != BP_OK || flushing_kernels.empty()) return status;
  Registration to(registrar);
  // An empty list of devices would stand for all of them.
  const std::vector<bp_device*> keeping = devices_that(true, *this);
  if (!keeping.empty()) to.add_kernels(kernels, keeping);
  to.add_kernels(flushing_kernels, devices_that(false, *this));
  return to.status();
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
