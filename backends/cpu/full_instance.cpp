#include "backends/cpu/full_instance.hpp"

#include "backends/cpu/blocked_weight.hpp"
#include "backends/cpu/device.hpp"
#include "backplane/shell/compiler.hpp"
#if BP_CPU_HAS_GROUPS
#include "backends/cpu/groups/access.hpp"
#include "backends/cpu/groups/groups.hpp"
#endif

namespace bp::cpu {

#if BP_CPU_HAS_GROUPS
struct ProcessGroups {
  explicit ProcessGroups(const Instance& i) : access(i), groups(*i.host, access) {}

  GroupAccess access;
  Groups groups;
};

void make_groups(FullInstance& i) {
  i.groups = std::make_shared<ProcessGroups>(i);
  i.process_groups = i.groups->groups.table();
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
