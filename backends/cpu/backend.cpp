#include "backends/cpu/backend.hpp"

#include <dlfcn.h>

#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/host_kernels/list.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/plugin.hpp"
#include "backplane/shell/profiler.hpp"

namespace bp::cpu {
namespace {

// The threads of the OpenMP runtime stay after their work has ended. If libgomp were unloaded with
// this library, these threads would run code that is no longer mapped, so libgomp stays loaded.
void pin_openmp_runtime() { dlopen("libgomp.so.1", RTLD_NOW | RTLD_NODELETE); }

}  // namespace

Instance::Instance(const bp_host* its_host)
    : BackendInstance(its_host,
                      backend_table<Instance, FullInstance>(this, "backplane.cpu", "0.1.0"),
                      {.devices = kDevices,
                       .allocator = kAllocator,
                       .streams = kStreams,
                       .events = kEvents,
                       .guard = &kGuard,
                       .virtual_memory = &kVirtualMemory,
                       .semaphores = &kSemaphores,
                       .faults = &kFaults}),
      options(read_options(*its_host)),
      device(std::make_unique<Device>(*its_host, options)) {
  add_kernels(kernels::kElementwiseKernels);
  add_kernels(kernels::kLibraryKernels);
  add_kernels(kernels::kKernels);
  add_kernels(kernels::kCpuKernels);
  make_profiler(*this);
  put_captures(*this);
}

Instance::~Instance() = default;

bool Instance::wait_for_work(uint64_t timeout_ns) { return device->wait_for_work(timeout_ns); }

}  // namespace bp::cpu

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return bp::answer_entry("backplane.cpu", request, out_reply, [](const bp_host& host) {
    bp::cpu::pin_openmp_runtime();
    return &(new bp::cpu::FullInstance(&host))->backend;
  });
}
