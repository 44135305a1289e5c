#include "backends/sim/backend.hpp"

#include <iterator>

#include "backends/host_kernels/list.hpp"
#include "backends/sim/collective.hpp"
#include "backends/sim/device.hpp"
#include "backends/sim/processor.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/plugin.hpp"
#include "backplane/shell/profiler.hpp"
#include "backplane/shell/shared_events.hpp"

namespace bp::sim {
namespace {

// The most threads that run work. If more streams have work, they take turns.
constexpr size_t kMaxWorkers = 16;

}  // namespace

Instance::Instance(const bp_host* its_host)
    : BackendInstance(its_host, backend_table(this, "backplane.sim", "0.1.0"),
                      {.devices = kDevices,
                       .allocator = kAllocator,
                       .streams = kStreams,
                       .events = kEvents,
                       .guard = &kGuard,
                       .virtual_memory = &kVirtualMemory,
                       .semaphores = &kSemaphores,
                       .faults = &kFaults}),
      options(read_options(*its_host)),
      executors(options.has_shared_queue ? 1 : kMaxWorkers),
      collectives(std::make_unique<Collectives>(*this)) {
  plain_kernels.assign(std::begin(kernels::kElementwiseKernels),
                       std::end(kernels::kElementwiseKernels));
#if BP_SIM_HAS_ONEDNN
  programs = kernels::make_program_cache();
  plain_kernels.insert(plain_kernels.end(), std::begin(kernels::kLibraryKernels),
                       std::end(kernels::kLibraryKernels));
#endif
  plain_kernels.insert(plain_kernels.end(), std::begin(kernels::kKernels),
                       std::end(kernels::kKernels));
  // Links are lent to a launch, and the copies of a kernel that takes tiles have none.
  if (options.layouts != LayoutMode::kOnly) plain_kernels.push_back(&kScaledNeg);
  if (options.has_own_ops) plain_kernels.push_back(&kClip);
  // The host sees no kernel of a device that runs programs alone, and so no declaration of one.
  const auto flushes = [](const bp_kernel* kernel) {
    return kernel->numerics != nullptr && kernel->numerics->flush != 0;
  };
  if (!options.has_kernels) std::erase_if(plain_kernels, flushes);
  add_kernels(plain_kernels);
  process_groups = collectives->groups.table();
  for (uint32_t index = 0; index < options.device_count; ++index) {
    cards.push_back(std::make_unique<Device>(*this, index));
  }
  make_profiler(*this);
  put_captures(*this);
  make_layouts(*this);
  make_compiler(*this);
  fit_tables(*this);
}

std::span<const bp_op_desc> Instance::described_ops() const {
  return options.has_own_ops ? kOwnOps : std::span<const bp_op_desc>{};
}

// Waits for running work, and aborts work that waits for an event which nobody can signal any more.
Instance::~Instance() {
  compiler.reset();
  shared_events.reset();
  captures.reset();
  executors.wait_idle();
  for (const std::unique_ptr<Device>& device : cards) device->abandon_work();
  executors.wait_idle();
  // A loss that another instance reports schedules work, which the executors take until they stop.
  for (const std::unique_ptr<Device>& device : cards) device->leave_card();
  executors.stop();
}

}  // namespace bp::sim

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return bp::answer_entry("backplane.sim", request, out_reply, [](const bp_host& host) {
    if (const char* const missing = bp::sim::missing_processor_feature(); missing != nullptr) {
      bp::refuse(BP_UNSUPPORTED, std::string("backplane.sim was built for processors with ") +
                                     missing + ", which this one lacks");
    }
    return &(new bp::sim::Instance(&host))->backend;
  });
}
