#include "backends/cpu/backend.hpp"

#include <dlfcn.h>

#include <cstddef>

#include "backends/cpu/device.hpp"
#include "backends/cpu/full_instance.hpp"
#include "backends/host_kernels/list.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/profiler.hpp"

namespace bp::cpu {
namespace {

using namespace kernels;

// Adds what a host takes: an older one lacks members.
bp_status add_optional_tables(const FullInstance& i, const bp_registrar& r) {
  bp_status status = BP_OK;
  const auto add = [&](auto* entry, const auto& table) {
    if (status == BP_OK && entry != nullptr) status = entry(r.self, 0, nullptr, &table, nullptr);
  };
  add(r.add_virtual_memory, i.virtual_memory);
  add(r.add_layout, i.layout_table);
  add(r.add_graph, i.graphs);
  add(r.add_compiler, i.compilation);
  add(r.add_profiler, i.profiling);
  return status;
}

bp_status register_all(void* self, const bp_registrar* registrar) {
  const FullInstance& i = full_instance(self);
  if (registrar == nullptr) {
    return i.fail(BP_INVALID_ARGUMENT, "register_all: registrar is NULL");
  }
  bp_registrar known{};  // What this build knows of it: an older host's is shorter.
  if (bp_struct_read(registrar, kFirstSize<bp_registrar>, &known, sizeof(known), nullptr) !=
      BP_OK) {
    return i.fail(BP_INCOMPATIBLE, "register_all: the registrar cannot be read");
  }
  void* const r = registrar->self;
  bp_status status = registrar->add_device(r, 0, nullptr, &i.devices, nullptr);
  if (status == BP_OK) status = registrar->add_allocator(r, 0, nullptr, &i.allocator, nullptr);
  if (status == BP_OK) {
    status = registrar->add_streams(r, 0, nullptr, &i.streams, &i.events, nullptr);
  }
  if (status == BP_OK) status = add_optional_tables(i, known);
  for (const bp_kernel& kernel : i.kernels) {
    const bp_kernel* const row = &kernel;
    if (status == BP_OK) status = registrar->add_kernels(r, 0, nullptr, 1, &row, nullptr);
  }
  return status;
}

bp_status shutdown(void* self) {
  delete &full_instance(self);
  return BP_OK;
}

// The threads of the OpenMP runtime outlive the work that they were made for. Were its library
// unloaded with this one, they would run code that is gone, so it alone stays.
void pin_openmp_runtime() { dlopen("libgomp.so.1", RTLD_NOW | RTLD_NODELETE); }

}  // namespace

Instance::Instance(const bp_host* its_host)
    : host(its_host),
      options(read_options(*its_host)),
      backend{
          .struct_size = sizeof(bp_backend),
          .struct_type = BP_STRUCT_BACKEND,
          .self = this,
          .name = "backplane.cpu",
          .version = "0.1.0",
          .register_all = register_all,
          .shutdown = shutdown,
      },
      devices(kDevices),
      allocator(kAllocator),
      streams(kStreams),
      events(kEvents),
      virtual_memory(kVirtualMemory),
      device(std::make_unique<Device>(*its_host, options)) {
  devices.self = this;
  allocator.self = this;
  streams.self = this;
  events.self = this;
  virtual_memory.self = this;
  for (const bp_kernel* kernel : kElementwiseKernels) kernels.push_back(*kernel);
  for (const bp_kernel* kernel : kKernels) kernels.push_back(*kernel);
  for (const bp_kernel* kernel : kLibraryKernels) kernels.push_back(*kernel);
  for (bp_kernel& kernel : kernels) kernel.state = this;
  make_profiler(*this);
  put_captures(*this);
  make_compiler(*this);
}

Instance::~Instance() = default;

}  // namespace bp::cpu

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  if (request == nullptr || request->host == nullptr) return BP_INVALID_ARGUMENT;
  const bp_host& host = *request->host;
  if (out_reply == nullptr) {
    return host.set_error(host.self, BP_INVALID_ARGUMENT, "entry: out_reply is NULL");
  }
  return bp::guarded(host, [&] {
    if (!bp_abi_is_served(request)) {
      const std::string text = "backplane.cpu serves ABI " + std::to_string(BP_ABI_MAJOR) + "." +
                               std::to_string(BP_ABI_MINOR) + " only";
      return host.set_error(host.self, BP_INCOMPATIBLE, text.c_str());
    }
    if (out_reply->struct_size < bp::kFirstSize<bp_entry_reply>) {
      return host.set_error(host.self, BP_INCOMPATIBLE, "entry: out_reply is too short");
    }
    bp::cpu::pin_openmp_runtime();
    out_reply->backend = &(new bp::cpu::FullInstance(&host))->backend;
    out_reply->abi_major = BP_ABI_MAJOR;
    out_reply->abi_minor = BP_ABI_MINOR;
    return bp_status{BP_OK};
  });
}
