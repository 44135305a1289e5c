// The entries that all tables of process groups of this backend have in common: they check the
// host's arguments, and put calls on their streams.
//
// Rules:
//   Groups     The `self` of the table. It has host() and backend().
//   Group      One rank, an object as in lookup.hpp, to which a bp_process_group* points. It has
//              `world`, a shared pointer, and device(). rank_of(const Group&) is in its namespace.
//              bind(call) gives a call what it needs of the rank.
//   World      What the ranks share. It has size(), status(), plan(), end(), a type Call, which is
//              a RankCall, and number(call) and arrive(call, before), as world.hpp says.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/collective.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::cpu {

template <typename Groups, typename Group>
struct GroupEntries {
  using World = typename decltype(Group::world)::element_type;
  using Call = typename World::Call;

  // Runs body(Groups&), which returns a status or throws, for an entry of the table.
  template <typename Body>
  static bp_status entry(void* self, Body&& body) {
    auto& g = *static_cast<Groups*>(self);
    return guarded(g.host(), [&]() -> bp_status { return body(g); });
  }

  static Group& group_of(bp_process_group* handle, const char* call) {
    return checked_object_of<Group>(handle, call, "group");
  }

  static bp_status supports(void* self, bp_process_group* handle, bp_collective_kind kind,
                            bp_reduction reduction, bp_dtype dtype) {
    return entry(self, [&](Groups&) -> bp_status {
      static_cast<void>(group_of(handle, "supports"));
      const std::string reason = refuse_combined(kind, reduction, dtype);
      if (!reason.empty()) refuse(BP_UNSUPPORTED, "supports: " + reason);
      return BP_OK;
    });
  }

  // Returns the timeout of split() and shrink(), of which 0 means that of the group.
  static uint64_t timeout_of(const World& world, uint64_t timeout_ns) {
    return timeout_ns == 0 ? world.plan().timeout_ns : timeout_ns;
  }

  // ---- Submitting -------------------------------------------------------------------------------

  // One checked call. All calls are checked before any is submitted.
  struct Checked {
    std::shared_ptr<World> world;
    std::shared_ptr<Call> call;
  };

  static Checked check_call(Groups& g, const bp_collective_call* at, uint64_t index) {
    const std::string name = "submit: call " + std::to_string(index) + ": ";
    const auto theirs =
        read_desc(at, kFirstSize<bp_collective_call>, BP_STRUCT_COLLECTIVE_CALL, "submit");
    const Group& group = group_of(theirs.group, "submit");
    if (std::string why = refuse_combined(theirs.kind, theirs.reduction, theirs.dtype);
        !why.empty()) {
      refuse(BP_UNSUPPORTED, name + why);
    }
    check_not_ended(group.world->status(), name);
    auto call = std::make_shared<Call>();
    group.bind(*call);
    const RankPlace place{rank_of(group), group.world->size(), group.device()};
    read_rank_call(g.backend(), theirs, place, name, *call);
    return {group.world, std::move(call)};
  }

  // Puts a call on its stream. All calls arrive before any of them is waited for, so that a send
  // and a receive of one stream do not wait for each other. An arrival does not block.
  static void put_arrival(const Checked& c) {
    c.world->number(*c.call);
    static_cast<void>(c.call->queue->submit_always(
        [world = c.world, call = c.call](const Outcome& before) { world->arrive(call, before); },
        true));
  }

  static bp_status submit(void* self, uint64_t call_count, const bp_collective_call* calls,
                          uint64_t call_stride_bytes) {
    return entry(self, [&](Groups& g) -> bp_status {
      if (call_count != 0) require(calls, "submit: calls");
      std::vector<Checked> checked;
      const auto* at = reinterpret_cast<const std::byte*>(calls);
      for (uint64_t i = 0; i < call_count; ++i, at += call_stride_bytes) {
        check_stride(at, call_stride_bytes, "submit: call_stride_bytes");
        checked.push_back(check_call(g, reinterpret_cast<const bp_collective_call*>(at), i));
      }
      for (const Checked& c : checked) {
        if (const bp_status status = c.call->queue->admit(); status != BP_OK) return status;
      }
      for (const Checked& c : checked) put_arrival(c);
      for (const Checked& c : checked) static_cast<void>(c.call->queue->wait_for(c.call->done));
      return BP_OK;
    });
  }

  // ---- The state of a group ---------------------------------------------------------------------

  static bp_status abort(void* self, bp_process_group* handle) {
    return entry(self, [&](Groups&) -> bp_status {
      const Group& group = group_of(handle, "abort");
      group.world->end(
          {BP_ABORTED, "rank " + std::to_string(rank_of(group)) + " aborted the group"});
      return BP_OK;
    });
  }

  static bp_status status(void* self, bp_process_group* handle) {
    return entry(self, [&](Groups& g) -> bp_status {
      const Outcome ended = group_of(handle, "status").world->status();
      if (ended.status == BP_OK) return BP_OK;
      return g.host().set_error(g.host().self, ended.status, ended.text.c_str());
    });
  }

  static bp_status rank(void* self, bp_process_group* handle, uint32_t* out_rank,
                        uint32_t* out_world_size) {
    return entry(self, [&](Groups&) -> bp_status {
      give_rank(group_of(handle, "rank"), out_rank, out_world_size);
      return BP_OK;
    });
  }

  // The functions only check the range, because host memory needs no preparation.
  static bp_status check_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range,
                                const char* call) {
    return entry(self, [&](Groups& g) -> bp_status {
      const Group& group = group_of(handle, call);
      if (range == nullptr) {
        refuse(BP_INVALID_ARGUMENT, std::string(call) + ": range is NULL");
      }
      static_cast<void>(g.backend().memory(*range, group.device(), true, call, "range"));
      return BP_OK;
    });
  }
  static bp_status register_buffer(void* self, bp_process_group* handle,
                                   const bp_buffer_ref* range) {
    return check_buffer(self, handle, range, "register_buffer");
  }
  static bp_status deregister_buffer(void* self, bp_process_group* handle,
                                     const bp_buffer_ref* range) {
    return check_buffer(self, handle, range, "deregister_buffer");
  }

  // Returns a table with these entries, and without those that make and end groups.
  static bp_process_group_ops table(Groups* self, const char* name) {
    return {.struct_size = sizeof(bp_process_group_ops),
            .struct_type = BP_STRUCT_PROCESS_GROUP_OPS,
            .next = nullptr,
            .self = self,
            .name = name,
            .create = nullptr,
            .destroy = nullptr,
            .supports = supports,
            .submit = submit,
            .abort = abort,
            .status = status,
            .split = nullptr,
            .shrink = nullptr,
            .register_buffer = register_buffer,
            .deregister_buffer = deregister_buffer,
            .rank = rank};
  }
};

}  // namespace bp::cpu
