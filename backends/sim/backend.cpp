#include "backends/sim/backend.hpp"

#include <cstddef>
#include <iterator>
#include <string_view>

#include "backends/host_kernels/list.hpp"
#include "backends/sim/collective.hpp"
#include "backends/sim/device.hpp"
#include "backends/sim/processor.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/profiler.hpp"
#include "backplane/shell/shared_events.hpp"

namespace bp::sim {
namespace {

// More streams than these can have work at once; they take turns.
constexpr size_t kMaxWorkers = 16;

// Adds what a host takes: an older one lacks members.
bp_status add_optional_tables(const Instance& i, const bp_registrar& r) {
  bp_status status = BP_OK;
  const auto add = [&](auto* function, const auto& table) {
    if (status == BP_OK && function != nullptr) {
      status = function(r.self, 0, nullptr, &table, nullptr);
    }
  };
  if (i.layouts != nullptr) add(r.add_layout, i.layout_table);
  add(r.add_graph, i.graphs);
  add(r.add_compiler, i.compilation);
  add(r.add_profiler, i.profiling);
  add(r.add_device_guard, i.guard);
  add(r.add_process_group, i.collectives->table);
  if (i.options.has_virtual_memory) add(r.add_virtual_memory, i.virtual_memory);
  return status;
}

bp_status register_all(void* self, const bp_registrar* registrar) {
  return entry(self, [&](const Instance& i) -> bp_status {
    require(registrar, "register_all: registrar");
    bp_registrar known{};  // What this build knows of it: an older host's is shorter.
    if (bp_struct_read(registrar, kFirstSize<bp_registrar>, &known, sizeof(known), nullptr) !=
        BP_OK) {
      refuse(BP_INCOMPATIBLE, "register_all: the registrar cannot be read");
    }
    void* const r = registrar->self;
    bp_status status = registrar->add_device(r, 0, nullptr, &i.devices, nullptr);
    if (status == BP_OK) status = registrar->add_allocator(r, 0, nullptr, &i.allocator, nullptr);
    if (status == BP_OK) {
      status = registrar->add_streams(r, 0, nullptr, &i.streams, &i.events, nullptr);
    }
    if (status == BP_OK) status = add_optional_tables(i, known);
    if (!i.options.has_kernels) return status;
    for (const bp_kernel& kernel : i.kernels) {
      const bp_kernel* const row = &kernel;
      if (status == BP_OK) status = registrar->add_kernels(r, 0, nullptr, 1, &row, nullptr);
    }
    return status;
  });
}

bp_status get_extension(void* self, const char* name, uint32_t version,
                        const void** out_extension) {
  return entry(self, [&](const Instance& i) {
    require(name, "get_extension: name");
    require(out_extension, "get_extension: out_extension");
    if (std::string_view(name) != BP_TEST_FAULT_NAME || version != BP_TEST_FAULT_VERSION) {
      refuse(BP_NOT_FOUND, "get_extension: there is no \"" + std::string(name) + "\" version " +
                               std::to_string(version) +
                               "; there is \"" BP_TEST_FAULT_NAME "\" version 1");
    }
    *out_extension = &i.faults;
    return BP_OK;
  });
}

bp_status shutdown(void* self) {
  delete &instance(self);
  return BP_OK;
}

template <typename Ops>
Ops with_self(Ops ops, void* self) {
  ops.self = self;
  return ops;
}

}  // namespace

Instance::Instance(const bp_host* its_host)
    : host(its_host),
      options(read_options(*its_host)),
      backend{
          .struct_size = sizeof(bp_backend),
          .struct_type = BP_STRUCT_BACKEND,
          .self = this,
          .name = "backplane.sim",
          .version = "0.1.0",
          .register_all = register_all,
          .shutdown = shutdown,
          .get_extension = get_extension,
      },
      devices(with_self(kDevices, this)),
      allocator(with_self(kAllocator, this)),
      streams(with_self(kStreams, this)),
      events(with_self(kEvents, this)),
      guard(with_self(kGuard, this)),
      virtual_memory(with_self(kVirtualMemory, this)),
      faults(with_self(kFaults, this)),
      executor(options.has_shared_queue ? 1 : kMaxWorkers),
      collectives(std::make_unique<Collectives>(*this)) {
  plain_kernels.assign(std::begin(kernels::kElementwiseKernels),
                       std::end(kernels::kElementwiseKernels));
  plain_kernels.insert(plain_kernels.end(), std::begin(kernels::kKernels),
                       std::end(kernels::kKernels));
#if BP_SIM_HAS_ONEDNN
  programs = kernels::make_program_cache();
  plain_kernels.insert(plain_kernels.end(), std::begin(kernels::kLibraryKernels),
                       std::end(kernels::kLibraryKernels));
#endif
  for (const bp_kernel* kernel : plain_kernels) kernels.push_back(*kernel);
  for (bp_kernel& kernel : kernels) kernel.state = this;
  for (uint32_t index = 0; index < options.device_count; ++index) {
    cards.push_back(std::make_unique<Device>(*this, index));
  }
  make_profiler(*this);
  put_captures(*this);
  make_layouts(*this);
  make_compiler(*this);
  fit_tables(*this);
}

// Running work is waited for. What waits for an event that nobody can signal any more is aborted.
Instance::~Instance() {
  compiler.reset();
  shared_events.reset();
  captures.reset();
  executor.wait_idle();
  for (const std::unique_ptr<Device>& device : cards) device->abandon_work();
  executor.wait_idle();
  executor.stop();
}

}  // namespace bp::sim

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  if (request == nullptr || request->host == nullptr) return BP_INVALID_ARGUMENT;
  const bp_host& host = *request->host;
  return bp::guarded(host, [&] {
    bp::sim::require(out_reply, "entry: out_reply");
    if (!bp_abi_is_served(request)) {
      bp::sim::refuse(BP_INCOMPATIBLE, "backplane.sim serves ABI " + std::to_string(BP_ABI_MAJOR) +
                                           "." + std::to_string(BP_ABI_MINOR) + " only");
    }
    // The end of the last member of the first release: it must not grow when the struct does.
    if (out_reply->struct_size < bp::kFirstSize<bp_entry_reply>) {
      bp::sim::refuse(BP_INCOMPATIBLE, "entry: out_reply is too short");
    }
    if (const char* const missing = bp::sim::missing_processor_feature(); missing != nullptr) {
      bp::sim::refuse(BP_UNSUPPORTED, std::string("backplane.sim was built for processors with ") +
                                          missing + ", which this one lacks");
    }
    out_reply->backend = &(new bp::sim::Instance(&host))->backend;
    out_reply->abi_major = BP_ABI_MAJOR;
    out_reply->abi_minor = BP_ABI_MINOR;
    return bp_status{BP_OK};
  });
}
