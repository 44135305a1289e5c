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

bp_status register_all(void* self, const bp_registrar* registrar) {
  return entry<Instance>(self, [&](const Instance& instance) -> bp_status {
    const auto& i = static_cast<const FullInstance&>(instance);
    Registration to(registrar);
    to.add_tables(i);
    to.add(&bp_registrar::add_virtual_memory, i.virtual_memory);
    to.add(&bp_registrar::add_layout, i.layout_table);
    to.add(&bp_registrar::add_graph, i.graphs);
    to.add(&bp_registrar::add_compiler, i.compilation);
    to.add(&bp_registrar::add_profiler, i.profiling);
    to.add_kernels(i.kernels);
    return to.status();
  });
}

// The threads of the OpenMP runtime stay after their work has ended. If libgomp were unloaded with
// this library, these threads would run code that is no longer mapped, so libgomp stays loaded.
void pin_openmp_runtime() { dlopen("libgomp.so.1", RTLD_NOW | RTLD_NODELETE); }

}  // namespace

Instance::Instance(const bp_host* its_host)
    : HostedInstance{its_host},
      options(read_options(*its_host)),
      backend(backend_table<Instance, FullInstance>(this, "backplane.cpu", "0.1.0", register_all)),
      devices(with_self(kDevices, this)),
      allocator(with_self(kAllocator, this)),
      streams(with_self(kStreams, this)),
      events(with_self(kEvents, this)),
      virtual_memory(with_self(kVirtualMemory, this)),
      device(std::make_unique<Device>(*its_host, options)) {
  for (const bp_kernel* kernel : kernels::kElementwiseKernels) kernels.push_back(*kernel);
  for (const bp_kernel* kernel : kernels::kKernels) kernels.push_back(*kernel);
  for (const bp_kernel* kernel : kernels::kLibraryKernels) kernels.push_back(*kernel);
  for (bp_kernel& kernel : kernels) kernel.state = this;
  make_profiler(*this);
  put_captures(*this);
  make_compiler(*this);
}

Instance::~Instance() = default;

}  // namespace bp::cpu

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return bp::answer_entry("backplane.cpu", request, out_reply, [](const bp_host& host) {
    bp::cpu::pin_openmp_runtime();
    return &(new bp::cpu::FullInstance(&host))->backend;
  });
}
