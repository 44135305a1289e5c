// Process groups over MPI: one rank in each process that mpirun, or another launcher of MPI, has
// started.
//
// A group of one rank needs no MPI, and runs its calls here. A call waits for its turn on its
// stream, and then the thread of pump.hpp runs it. Neither the stream nor that thread blocks.
#pragma once

#include <memory>
#include <utility>

#include "backends/cpu/groups/entries.hpp"
#include "backends/cpu/mpi/pump.hpp"

namespace bp::mpi {

// One rank of a group. A bp_process_group* points to it.
struct Group {
  static constexpr uint32_t kMagic = 0x6d706967;

  uint32_t magic = kMagic;
  std::shared_ptr<World> world;

  bp_device* device() const { return world->plan().device; }
  void bind(Running&) const {}
};

inline uint32_t rank_of(const Group& group) { return group.world->rank(); }

// The groups of one instance. It is the `self` of their table.
class Groups {
 public:
  Groups(const bp_host& host, GroupBackend& backend) : host_(host), backend_(backend) {}

  const bp_host& host() const { return host_; }
  GroupBackend& backend() const { return backend_; }
  bp_process_group_ops table();

  // Makes a group of the ranks that the plan has, for the entry `call`, and the handle of this
  // rank.
  bp_process_group* make(const WorldPlan& plan, uint64_t timeout_ns, const char* call);

 private:
  const bp_host& host_;
  GroupBackend& backend_;
  Pump pump_;
};

using Entries = cpu::GroupEntries<Groups, Group>;

// The entries of the table that split and shrink groups.
bp_status split_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups);
bp_status shrink_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups);

}  // namespace bp::mpi
