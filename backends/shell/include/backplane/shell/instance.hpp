// The base of the instance of a backend: the tables that the backend offers, its kernels, and the
// counts that every submission reads. It fills the tables from constants, and registers those that
// are there.
//
//   struct Instance : BackendInstance {
//     explicit Instance(const bp_host* its_host)
//         : BackendInstance(its_host, backend_table(this, "backplane.sim", "0.1.0"),
//                           {.devices = kDevices, .allocator = kAllocator, .streams = kStreams,
//                            .events = kEvents, .guard = &kGuard}) {
//       add_kernels(kKernels);
//       ...
//     }
//     std::vector<std::unique_ptr<Device>> cards;
//   };
//
// Nothing here owns what a backend must end in an order. The members of the backend's own Instance
// end before those of the base, in the reverse order of their declarations.
#pragma once

#include <span>
#include <vector>

#include "backplane/backend.h"
#include "backplane/kernel.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/test_fault.h"

namespace bp {

// The constant tables of a backend, without their `self`. The backend does not offer a table that
// is NULL.
struct ConstantTables {
  const bp_device_ops& devices;
  const bp_allocator_ops& allocator;
  const bp_stream_ops& streams;
  const bp_event_ops& events;
  const bp_device_guard_ops* guard = nullptr;
  const bp_virtual_memory_ops* virtual_memory = nullptr;
  const bp_semaphore_ops* semaphores = nullptr;
  const bp_test_fault_ops* faults = nullptr;
};

struct BackendInstance : HostedInstance {
  // `its_backend` is what backend_table() of plugin.hpp returns. Its `self` becomes that of all
  // tables.
  BackendInstance(const bp_host* its_host, const bp_backend& its_backend,
                  const ConstantTables& tables);
  BackendInstance(const BackendInstance&) = delete;

  // Appends copies of the kernels, whose `state` is the instance.
  void add_kernels(std::span<const bp_kernel* const> rows);

  // Registers the tables that have a struct_size, then the kernels. Returns the status with which
  // the host refused one. Throws StatusError if the registrar cannot be read.
  bp_status register_tables(const bp_registrar* registrar) const;

  bp_backend backend;
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
  // A table that the backend does not offer is all zeros. The backend's own Instance fills those
  // that are no constants.
  bp_device_guard_ops guard{};
  bp_virtual_memory_ops virtual_memory{};
  bp_test_fault_ops faults{};  // The extension bp.test.fault, which is not registered.
  bp_layout_ops layout_table{};
  bp_graph_ops graphs{};
  bp_compiler_ops compilation{};
  bp_process_group_ops process_groups{};
  bp_profiler_ops profiling{};
  bp_semaphore_ops semaphores{};
  std::vector<bp_kernel> kernels;
  bool offers_kernels = true;  // If false, only compiled programs use the kernels.
  Hooks hooks;
};

}  // namespace bp
