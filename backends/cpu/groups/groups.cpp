// The table of process groups. Its entries check the host's arguments, and put calls on their
// streams.
#include "backends/cpu/groups/groups.hpp"

#include <cstddef>
#include <string>
#include <utility>

#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cpu {
namespace {

constexpr const char* kTableName = "gloo";

Group& group_of(bp_process_group* handle, const char* call) {
  return checked_object_of<Group>(handle, call, "group");
}

// ---- Making groups ------------------------------------------------------------------------------

// Reads a desc and checks it.
WorldPlan read_plan(Groups& g, const bp_process_group_desc& desc) {
  check_group_desc(desc);
  WorldPlan plan;
  plan.options = read_listen_options(desc, kTableName);
  plan.size = desc.world_size;
  plan.timeout_ns = desc.timeout_ns;
  plan.prefix = desc.key_prefix == nullptr ? "" : desc.key_prefix;
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    g.backend().check_device(desc.devices[i], "create");
    plan.devices.push_back(desc.devices[i]);
    plan.ranks.push_back(desc.ranks[i]);
  }
  if (desc.local_count == desc.world_size) {
    plan.local_store = std::make_shared<LocalStore>();
  } else if (desc.store == nullptr) {
    refuse(BP_INVALID_ARGUMENT,
           "create: store is NULL; it may be NULL only if all ranks live in this process");
  } else {
    check_offer(desc.store, kFirstSize<bp_store>, "create: store");
    plan.store = desc.store;
  }
  return plan;
}

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  return group_entry(self, [&](Groups& g) -> bp_status {
    require(theirs, "create: desc");
    require(out_groups, "create: out_groups");
    const auto desc = read_desc(theirs, kFirstSize<bp_process_group_desc>,
                                BP_STRUCT_PROCESS_GROUP_DESC, "create");
    const WorldPlan plan = read_plan(g, desc);
    const Deadline deadline(desc.timeout_ns);
    const std::shared_ptr<World> world = g.start(plan, "create");
    world->wait_until_made(deadline, desc.timeout_ns, "create");
    for (uint32_t i = 0; i < desc.local_count; ++i) {
      out_groups[i] = face(world, *world->members()[i]);
    }
    return BP_OK;
  });
}

bp_status destroy(void* self, bp_process_group* handle) {
  return group_entry(self, [&](Groups& g) -> bp_status {
    if (handle == nullptr) return BP_OK;
    Group& group = group_of(handle, "destroy");
    group.magic = 0;
    group.member->leave();
    delete &group;
    g.forget_ended();
    return BP_OK;
  });
}

bp_status supports(void* self, bp_process_group* handle, bp_collective_kind kind,
                   bp_reduction reduction, bp_dtype dtype) {
  return group_entry(self, [&](Groups&) -> bp_status {
    static_cast<void>(group_of(handle, "supports"));
    const std::string reason = refuse_combined(kind, reduction, dtype);
    if (!reason.empty()) refuse(BP_UNSUPPORTED, "supports: " + reason);
    return BP_OK;
  });
}

// ---- Submitting ---------------------------------------------------------------------------------

// One checked call. All calls are checked before any is submitted.
struct Checked {
  std::shared_ptr<World> world;
  std::shared_ptr<Running> call;
};

Checked check_call(Groups& g, const bp_collective_call* at, uint64_t index) {
  const std::string name = "submit: call " + std::to_string(index) + ": ";
  const auto theirs =
      read_desc(at, kFirstSize<bp_collective_call>, BP_STRUCT_COLLECTIVE_CALL, "submit");
  const Group& group = group_of(theirs.group, "submit");
  if (std::string why = refuse_combined(theirs.kind, theirs.reduction, theirs.dtype);
      !why.empty()) {
    refuse(BP_UNSUPPORTED, name + why);
  }
  check_not_ended(group.world->status(), name);
  auto call = std::make_shared<Running>();
  call->member = group.member;
  const RankPlace place{group.member->rank(), group.world->size(), group.member->device()};
  read_rank_call(g.backend(), theirs, place, name, *call);
  return {group.world, std::move(call)};
}

// Puts a call on its stream. All calls arrive before any of them is waited for, so that a send and
// a receive of one stream do not wait for each other.
void put_arrival(const Checked& c) {
  c.world->number(*c.call);
  static_cast<void>(c.call->queue->submit_always(
      [world = c.world, call = c.call](const Outcome& before) { world->arrive(call, before); },
      false));
}

bp_status submit(void* self, uint64_t call_count, const bp_collective_call* calls,
                 uint64_t call_stride_bytes) {
  return group_entry(self, [&](Groups& g) -> bp_status {
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

// ---- The state of a group -----------------------------------------------------------------------

bp_status abort_group(void* self, bp_process_group* handle) {
  return group_entry(self, [&](Groups&) -> bp_status {
    const Group& group = group_of(handle, "abort");
    group.world->end(
        {BP_ABORTED, "rank " + std::to_string(group.member->rank()) + " aborted the group"});
    return BP_OK;
  });
}

bp_status status(void* self, bp_process_group* handle) {
  return group_entry(self, [&](Groups& g) -> bp_status {
    const Outcome ended = group_of(handle, "status").world->status();
    if (ended.status == BP_OK) return BP_OK;
    return g.host().set_error(g.host().self, ended.status, ended.text.c_str());
  });
}

bp_status rank(void* self, bp_process_group* handle, uint32_t* out_rank, uint32_t* out_world_size) {
  return group_entry(self, [&](Groups&) -> bp_status {
    give_rank(group_of(handle, "rank"), out_rank, out_world_size);
    return BP_OK;
  });
}

// The functions only check the range, because host memory needs no preparation.
bp_status check_buffer(Groups& g, bp_process_group* handle, const bp_buffer_ref* range,
                       const char* call) {
  const Group& group = group_of(handle, call);
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, std::string(call) + ": range is NULL");
  static_cast<void>(g.backend().memory(*range, group.member->device(), true, call, "range"));
  return BP_OK;
}

bp_status register_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range) {
  return group_entry(self,
                     [&](Groups& g) { return check_buffer(g, handle, range, "register_buffer"); });
}

bp_status deregister_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range) {
  return group_entry(
      self, [&](Groups& g) { return check_buffer(g, handle, range, "deregister_buffer"); });
}

}  // namespace

bp_process_group* face(const std::shared_ptr<World>& world, Member& member) {
  return reinterpret_cast<bp_process_group*>(new Group{.world = world, .member = &member});
}

std::shared_ptr<World> Groups::start(const WorldPlan& plan, const char* call) {
  forget_ended();
  auto world = World::start(threads_, plan, call);
  worlds_->add(world);
  return world;
}

bp_process_group_ops Groups::table() {
  return {.struct_size = sizeof(bp_process_group_ops),
          .struct_type = BP_STRUCT_PROCESS_GROUP_OPS,
          .next = nullptr,
          .self = this,
          .name = kTableName,
          .create = create,
          .destroy = destroy,
          .supports = supports,
          .submit = submit,
          .abort = abort_group,
          .status = status,
          .split = split_groups,
          .shrink = shrink_groups,
          .register_buffer = register_buffer,
          .deregister_buffer = deregister_buffer,
          .rank = rank};
}

}  // namespace bp::cpu
