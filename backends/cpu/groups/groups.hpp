// Process groups on Gloo's TCP transport. Ranks live in any number of processes, and several may
// live in one.
//
// A call waits for its turn on its stream, and then runs on a thread of its own, because Gloo's
// collectives block. Its stream waits meanwhile, and no thread of the stream does. A call has its
// number in Gloo's messages, so calls that run at the same time do not mix.
#pragma once

#include <memory>

#include "backends/cpu/groups/entries.hpp"
#include "backends/cpu/groups/worlds.hpp"
#include "backplane/collective.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::cpu {

// One rank of a group. A bp_process_group* points to it.
struct Group {
  static constexpr uint32_t kMagic = 0x676c6f6f;

  uint32_t magic = kMagic;
  std::shared_ptr<World> world;
  Member* member = nullptr;

  bp_device* device() const { return member->device(); }
  void bind(Running& call) const { call.member = member; }
};

inline uint32_t rank_of(const Group& group) { return group.member->rank(); }

// The groups of one instance. It is the `self` of their table.
class Groups {
 public:
  Groups(const bp_host& host, GroupBackend& backend) : backend_(backend), threads_(host) {}
  Groups(const Groups&) = delete;
  ~Groups() { worlds_->shut_down(); }

  const bp_host& host() const { return threads_.host; }
  GroupBackend& backend() const { return backend_; }
  bp_process_group_ops table();

  // Begins to connect the ranks of a new group, for the entry `call`. Throws StatusError.
  std::shared_ptr<World> start(const WorldPlan& plan, const char* call);

  // Forgets the worlds whose members are over.
  void forget_ended() { worlds_->forget_ended(); }

 private:
  GroupBackend& backend_;
  GroupThreads threads_;
  const std::shared_ptr<Worlds> worlds_ = std::make_shared<Worlds>(threads_.deadlines);
};

using Entries = GroupEntries<Groups, Group>;

// Makes the handle of one rank.
bp_process_group* face(const std::shared_ptr<World>& world, Member& member);

// The entries of the table that split and shrink groups.
bp_status split_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups);
bp_status shrink_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups);

}  // namespace bp::cpu
