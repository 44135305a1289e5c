#include "backends/cpu/full_instance.hpp"

#include <optional>
#include <vector>

#include "backends/cpu/blocked_weight.hpp"
#include "backends/cpu/device.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/plugin.hpp"
#if BP_CPU_HAS_GROUPS
#include "backends/cpu/groups/access.hpp"
#endif
#if BP_CPU_HAS_GLOO
#include "backends/cpu/groups/groups.hpp"
#endif
#if BP_CPU_HAS_MPI
#include "backends/cpu/mpi/groups.hpp"
#endif

namespace bp::cpu {

#if BP_CPU_HAS_GROUPS
struct ProcessGroups {
  explicit ProcessGroups(const Instance& i) : access(i) {
#if BP_CPU_HAS_GLOO
    tables.push_back(over_gloo.emplace(*i.host, access).table());
#endif
#if BP_CPU_HAS_MPI
    tables.push_back(over_mpi.emplace(*i.host, access).table());
#endif
  }

  GroupAccess access;
#if BP_CPU_HAS_GLOO
  std::optional<Groups> over_gloo;
#endif
#if BP_CPU_HAS_MPI
  std::optional<mpi::Groups> over_mpi;
#endif
  std::vector<bp_process_group_ops> tables;  // The first one is the device's first way.
};

// Registers what every backend registers, and the tables of process groups behind the first one.
bp_status register_with_groups(void* self, const bp_registrar* registrar) {
  const bp_status status = register_all<Instance>(self, registrar);
  if (status != BP_OK) return status;
  return entry<Instance>(self, [&](const Instance&) -> bp_status {
    const auto& tables = full_instance(self).groups->tables;
    Registration to(registrar);
    for (size_t i = 1; i < tables.size(); ++i) to.add(&bp_registrar::add_process_group, tables[i]);
    return to.status();
  });
}

void make_groups(FullInstance& i) {
  i.groups = std::make_shared<ProcessGroups>(i);
  i.process_groups = i.groups->tables[0];
  i.backend.register_all = register_with_groups;
}
#else
void make_groups(FullInstance&) {}
#endif

FullInstance::FullInstance(const bp_host* its_host) : Instance(its_host) {
  share_events(*this);
  make_layouts(*this);
  make_compiler(*this);
  make_groups(*this);
}

// Executables that the host left release their layouts.
FullInstance::~FullInstance() { compiler.reset(); }

}  // namespace bp::cpu
