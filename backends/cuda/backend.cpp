#include "backends/cuda/backend.hpp"

#include <cstddef>

#include "backends/cuda/collective.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/engines.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/first_size.hpp"

namespace bp::cuda {
namespace {

// Adds what a host takes: an older one lacks members.
bp_status add_optional_tables(const Instance& i, const bp_registrar& r) {
  bp_status status = BP_OK;
  const auto add = [&](auto* function, const auto& table) {
    if (status == BP_OK && function != nullptr) {
      status = function(r.self, 0, nullptr, &table, nullptr);
    }
  };
  add(r.add_graph, i.graphs);
  add(r.add_compiler, i.compilation);
  add(r.add_process_group, i.process_groups);
  add(r.add_device_guard, i.guard);
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
    for (const bp_kernel& kernel : i.kernels) {
      const bp_kernel* const row = &kernel;
      if (status == BP_OK) status = registrar->add_kernels(r, 0, nullptr, 1, &row, nullptr);
    }
    return status;
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

Instance::Instance(const bp_host* its_host, Driver its_driver)
    : host(its_host),
      driver(std::move(its_driver)),
      options(read_options(*its_host)),
      backend{
          .struct_size = sizeof(bp_backend),
          .struct_type = BP_STRUCT_BACKEND,
          .self = this,
          .name = "backplane.cuda",
          .version = "0.1.0",
          .register_all = register_all,
          .shutdown = shutdown,
      },
      devices(with_self(kDevices, this)),
      allocator(with_self(kAllocator, this)),
      streams(with_self(kStreams, this)),
      events(with_self(kEvents, this)),
      guard(with_self(kGuard, this)) {
  engines = std::make_unique<Engines>(*host);
  collectives = std::make_unique<Collectives>(*this);
  process_groups = collectives->table();
  std::vector<std::string> reasons;
  for (const Site& site : find_sites(driver, options, reasons)) {
    cards.push_back(std::make_unique<Device>(*this, site));
  }
  for (const std::string& reason : reasons) {
    host->log(host->self, BP_LOG_WARNING, ("backplane.cuda: " + reason).c_str());
  }
  for (const bp_kernel* kernel : kernel_list()) kernels.push_back(*kernel);
  for (bp_kernel& kernel : kernels) kernel.state = this;
  put_captures(*this);
  make_compiler(*this);
}

// Running work is waited for: its callbacks are to run, and none comes behind shutdown(). What
// waits for an event that nobody can signal any more is aborted.
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
  if (request == nullptr || request->host == nullptr) return BP_INVALID_ARGUMENT;
  const bp_host& host = *request->host;
  return guarded(host, [&]() -> bp_status {
    require(out_reply, "entry: out_reply");
    if (!bp_abi_is_served(request)) {
      refuse(BP_INCOMPATIBLE, "backplane.cuda serves ABI " + std::to_string(BP_ABI_MAJOR) + "." +
                                  std::to_string(BP_ABI_MINOR) + " only");
    }
    if (out_reply->struct_size < kFirstSize<bp_entry_reply>) {
      refuse(BP_INCOMPATIBLE, "entry: out_reply is too short");
    }
    out_reply->backend = &(new Instance(&host, driver()))->backend;
    out_reply->abi_major = BP_ABI_MAJOR;
    out_reply->abi_minor = BP_ABI_MINOR;
    return BP_OK;
  });
}

}  // namespace bp::cuda
