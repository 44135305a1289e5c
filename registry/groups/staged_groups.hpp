// The table "staged" of one backend, over a table of process groups of another one (staged.h).
#pragma once

#include <string>

#include "backplane/staged.h"
#include "registry/groups/staged_call.hpp"

namespace bp::core {

// It lives as long as the registry. It is thread-safe.
class StagedGroups final : public StagedTable {
 public:
  StagedGroups(const Plugin& plugin, const bp_target& transport, const bp_process_group_ops& inner);
  StagedGroups(const StagedGroups&) = delete;

  bool is_over(const bp_target& transport, const bp_process_group_ops& inner) const {
    return &transport == &transport_ && &inner == &inner_;
  }
  const bp_process_group_ops& table() const { return table_; }
  const bp_target& transport() const { return transport_; }
  const bp_process_group_ops& inner() const { return inner_; }
  StagedCourier& courier() { return courier_; }

  // Returns the target of a device of this backend, or NULL.
  const bp_target* target_of(const bp_device* device) const;

 private:
  const Plugin& plugin_;
  const bp_target& transport_;
  const bp_process_group_ops& inner_;
  bp_process_group_ops table_;
  StagedCourier courier_;
};

// The entries of the table that submit calls, and that make groups out of groups.
bp_status submit_staged(void* self, uint64_t call_count, const bp_collective_call* calls,
                        uint64_t call_stride_bytes);
bp_status split_staged(void* self, uint32_t local_count, bp_process_group* const* groups,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups);
bp_status shrink_staged(void* self, uint32_t local_count, bp_process_group* const* groups,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups);

inline StagedGroups& staged_of(void* self) { return *static_cast<StagedGroups*>(self); }
inline bp_process_group* face(StagedGroup* group) {
  return reinterpret_cast<bp_process_group*>(group);
}

// Returns the group behind a handle; else NULL, with an error text that begins with `what`.
StagedGroup* find_staged(bp_process_group* handle, const std::string& what);

// Makes the staged group of a group of the transport, which it owns. If this fails, nobody owns it.
bp_status adopt_inner(StagedGroups& groups, const bp_target& target, bp_process_group* inner,
                      bp_process_group*& out_group);

}  // namespace bp::core
