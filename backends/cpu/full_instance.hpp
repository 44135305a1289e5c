// An instance with the members that its kernels need not see, so that a change of these members
// does not compile the kernels again.
#pragma once

#include <memory>

#include "backends/cpu/backend.hpp"
#include "backplane/shell/layout.hpp"
#include "backplane/shell/shared_events.hpp"

namespace bp::cpu {

class BlockedWeights;
struct ProcessGroups;

struct FullInstance : Instance {
  explicit FullInstance(const bp_host* host);
  ~FullInstance();

  std::unique_ptr<SharedEvents> shared_events;  // It ends before the device, whose events it uses.
  std::unique_ptr<BlockedWeights> weights;
  std::unique_ptr<Layouts> layouts;
  std::shared_ptr<ProcessGroups> groups;  // NULL in a build without any.
};

// Puts events that processes share in front of those of events and streams.
void share_events(FullInstance& instance);

// Makes the table of layouts, and puts what takes them in front of the kernels.
void make_layouts(FullInstance& instance);

// Makes the compiler, which uses the layouts.
void make_compiler(FullInstance& instance);

// Makes the tables of process groups that this build has.
void make_groups(FullInstance& instance);

inline FullInstance& full_instance(void* self) {
  return static_cast<FullInstance&>(instance(self));
}

}  // namespace bp::cpu
