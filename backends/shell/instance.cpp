#include "backplane/shell/instance.hpp"

#include "backplane/shell/plugin.hpp"

namespace bp {
namespace {

// Fills `table` with a constant, if the backend has it.
template <typename Ops>
void put(const Ops* constant, void* self, Ops& table) {
  if (constant != nullptr) table = with_self(*constant, self);
}

}  // namespace

BackendInstance::BackendInstance(const bp_host* its_host, const bp_backend& its_backend,
                                 const ConstantTables& tables)
    : HostedInstance{its_host},
      backend(its_backend),
      devices(with_self(tables.devices, backend.self)),
      allocator(with_self(tables.allocator, backend.self)),
      streams(with_self(tables.streams, backend.self)),
      events(with_self(tables.events, backend.self)) {
  put(tables.guard, backend.self, guard);
  put(tables.virtual_memory, backend.self, virtual_memory);
  put(tables.semaphores, backend.self, semaphores);
  put(tables.faults, backend.self, faults);
  if (tables.faults == nullptr) backend.get_extension = nullptr;
}

void BackendInstance::add_kernels(std::span<const bp_kernel* const> rows) {
  for (const bp_kernel* const row : rows) kernels.push_back(*row);
  for (bp_kernel& kernel : kernels) kernel.state = backend.self;
}

bp_status BackendInstance::register_tables(const bp_registrar* registrar) const {
  Registration to(registrar);
  const auto add = [&](auto entry, const auto& table) {
    if (table.struct_size != 0) to.add(entry, table);
  };
  to.add_tables(*this);
  add(&bp_registrar::add_device_guard, guard);
  add(&bp_registrar::add_virtual_memory, virtual_memory);
  add(&bp_registrar::add_layout, layout_table);
  add(&bp_registrar::add_graph, graphs);
  add(&bp_registrar::add_compiler, compilation);
  add(&bp_registrar::add_process_group, process_groups);
  add(&bp_registrar::add_profiler, profiling);
  add(&bp_registrar::add_semaphore, semaphores);
  if (offers_kernels) to.add_kernels(kernels);
  return to.status();
}

}  // namespace bp
