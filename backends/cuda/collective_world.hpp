// How the ranks of a process group meet. The entries of the table share these functions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/collective.hpp"

namespace bp::cuda {

inline Collectives& collectives(void* self) { return *static_cast<Collectives*>(self); }

// Runs body(Collectives&), which returns a status or throws, for an entry of the table.
template <typename Body>
bp_status entry_of(void* self, Body&& body) {
  Collectives& c = collectives(self);
  return guarded(*c.instance().host, [&]() -> bp_status { return body(c); });
}

// Returns the group behind a handle, for the entry `call`. Throws StatusError.
Group& group_of(bp_process_group* handle, const char* call);

// Makes a handle of a rank.
bp_process_group* face(const std::shared_ptr<NcclWorld>& world, NcclMember* member);

// Reads the options of a desc for the table `table_name`. Throws StatusError.
NcclOptions read_nccl_options(const bp_process_group_desc& desc, const char* table_name);

// Returns the configuration of communicators that do not block.
ncclConfig_t configuration(const NcclOptions& options);

// The ranks of a new group, their devices, and how they find each other.
struct WorldPlan {
  std::vector<Device*> devices;
  std::vector<uint32_t> ranks;
  uint32_t world_size = 0;
  const bp_store* store = nullptr;  // NULL if all ranks are local.
  std::string prefix;
  uint64_t timeout_ns = 0;
  NcclOptions options;
};

// Throws StatusError unless each rank has its own device, which NCCL requires.
void check_devices(const WorldPlan& plan);

// Makes the communicators of the ranks that live here, and waits until all ranks have met, for the
// entry `call`. Throws StatusError.
std::shared_ptr<NcclWorld> make_world(Collectives& c, const Nccl& nccl, const WorldPlan& plan,
                                      const char* call);

// Makes a rank without a communicator.
std::unique_ptr<NcclMember> make_member(Collectives& c, uint32_t rank, Device& device);

std::vector<NcclMember*> members_of(NcclWorld& world);

// Connects the ranks here, because the first call must not wait for connections. Throws
// StatusError.
void meet(Collectives& c, NcclWorld& world, NcclClock::time_point deadline, const char* call);

// Runs body(member) for each member within one group of NCCL calls. Throws StatusError after it has
// closed the group.
template <typename Body>
void in_group(const Nccl& nccl, const std::vector<NcclMember*>& members, const Body& body) {
  check(nccl, nccl.group_start(), "ncclGroupStart");
  Outcome failure;
  try {
    for (NcclMember* member : members) {
      const Current current(*member->device);
      const std::lock_guard lock(member->mutex);
      body(*member);
    }
  } catch (const StatusError& e) {
    failure = {e.status(), e.what()};
  }
  const ncclResult_t ended = nccl.group_end();
  if (failure.status != BP_OK) refuse(failure.status, failure.text);
  check(nccl, ended, "ncclGroupEnd");
}

// The entries of the table that split and shrink groups.
bp_status split_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups);
bp_status shrink_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups);

}  // namespace bp::cuda
