// The table of process groups. Its entries check the host's arguments and put calls on their
// streams.
#include "backplane/shell/local_group.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp {
namespace {

constexpr const char* kTableName = "local";

LocalGroups& groups_of(void* self) { return *static_cast<LocalGroups*>(self); }

LocalGroup& group_of(bp_process_group* handle, const char* call) {
  return checked_object_of<LocalGroup>(handle, call, "group");
}

// Throws StatusError if a reset of its device has lost the group.
void require_group(LocalGroups& g, const LocalGroup& group, const char* call) {
  if (group.generation == g.backend().generation(group.device)) return;
  refuse(BP_DEVICE_LOST, std::string(call) + ": the group was made before its device was reset");
}

LocalGroup& living_group(LocalGroups& g, bp_process_group* handle, const char* call) {
  LocalGroup& group = group_of(handle, call);
  require_group(g, group, call);
  return group;
}

bp_process_group* face(LocalGroup* group) { return reinterpret_cast<bp_process_group*>(group); }

// Makes a new world, and one group for each of its devices.
std::vector<bp_process_group*> make_groups(LocalGroups& g, const std::vector<bp_device*>& devices,
                                           uint64_t timeout_ns) {
  const auto world = std::make_shared<World>(g.deadlines(), g.backend(), devices, timeout_ns);
  std::vector<bp_process_group*> made;
  for (uint32_t rank = 0; rank < devices.size(); ++rank) {
    made.push_back(face(new LocalGroup{.rank = rank,
                                       .device = devices[rank],
                                       .generation = g.backend().generation(devices[rank]),
                                       .world = world}));
  }
  return made;
}

void check_desc(LocalGroups& g, const bp_process_group_desc& desc) {
  check_group_desc(desc);
  static_cast<void>(read_group_options(desc, kTableName, {}));
  if (desc.local_count != desc.world_size) {
    refuse(BP_UNSUPPORTED, "create: local_count is " + std::to_string(desc.local_count) +
                               " and world_size is " + std::to_string(desc.world_size) +
                               "; this backend makes groups whose ranks all live in one process");
  }
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    g.backend().check_device(desc.devices[i], "create");
  }
}

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    require(theirs, "create: desc");
    require(out_groups, "create: out_groups");
    const auto desc = read_desc(theirs, kFirstSize<bp_process_group_desc>,
                                BP_STRUCT_PROCESS_GROUP_DESC, "create");
    check_desc(g, desc);
    std::vector<bp_device*> devices(desc.world_size);
    for (uint32_t i = 0; i < desc.local_count; ++i) devices[desc.ranks[i]] = desc.devices[i];
    const std::vector<bp_process_group*> made = make_groups(g, devices, desc.timeout_ns);
    for (uint32_t i = 0; i < desc.local_count; ++i) out_groups[i] = made[desc.ranks[i]];
    return bp_status{BP_OK};
  });
}

bp_status destroy(void* self, bp_process_group* handle) {
  return guarded(groups_of(self).host(), [&] {
    if (handle == nullptr) return bp_status{BP_OK};
    LocalGroup& group = group_of(handle, "destroy");
    group.magic = 0;
    delete &group;
    return bp_status{BP_OK};
  });
}

bp_status supports(void* self, bp_process_group* handle, bp_collective_kind kind,
                   bp_reduction reduction, bp_dtype dtype) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    static_cast<void>(living_group(g, handle, "supports"));
    const std::string reason = refuse_combined(kind, reduction, dtype);
    if (!reason.empty()) refuse(BP_UNSUPPORTED, "supports: " + reason);
    return bp_status{BP_OK};
  });
}

// One checked call. All calls are checked before any is submitted.
struct Checked {
  LocalGroup* group;
  std::shared_ptr<RankCall> call;
  uint64_t sequence = 0;
};

Checked check_call(LocalGroups& g, const bp_collective_call* at, uint64_t index) {
  const std::string name = "submit: call " + std::to_string(index) + ": ";
  const auto theirs =
      read_desc(at, kFirstSize<bp_collective_call>, BP_STRUCT_COLLECTIVE_CALL, "submit");
  LocalGroup& group = living_group(g, theirs.group, "submit");
  if (std::string why = refuse_combined(theirs.kind, theirs.reduction, theirs.dtype);
      !why.empty()) {
    refuse(BP_UNSUPPORTED, name + why);
  }
  check_not_ended(group.world->status(), name);
  auto call = std::make_shared<RankCall>();
  read_rank_call(g.backend(), theirs, {group.rank, group.world->size(), group.device}, name, *call);
  return {&group, std::move(call)};
}

// Refuses the calls if a stream has failed, so that nothing is submitted unless every stream takes
// its calls.
bp_status check_streams(const std::vector<Checked>& calls) {
  for (const Checked& c : calls) {
    if (const bp_status status = c.call->queue->admit(); status != BP_OK) return status;
  }
  return BP_OK;
}

bp_status submit(void* self, uint64_t call_count, const bp_collective_call* calls,
                 uint64_t call_stride_bytes) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    if (call_count != 0) require(calls, "submit: calls");
    std::vector<Checked> checked;
    const auto* at = reinterpret_cast<const std::byte*>(calls);
    for (uint64_t i = 0; i < call_count; ++i, at += call_stride_bytes) {
      check_stride(at, call_stride_bytes, "submit: call_stride_bytes");
      checked.push_back(check_call(g, reinterpret_cast<const bp_collective_call*>(at), i));
    }
    if (const bp_status status = check_streams(checked); status != BP_OK) return status;
    // All calls arrive before any of them waits, so that a send and a receive of one stream do not
    // wait for each other.
    for (Checked& c : checked) {
      c.sequence = c.group->world->take_sequence(*c.group, *c.call);
      static_cast<void>(c.call->queue->submit_always(
          [world = c.group->world, call = c.call, sequence = c.sequence](const Outcome& before) {
            world->arrive(call, sequence, before);
          },
          false));
    }
    for (const Checked& c : checked) static_cast<void>(c.call->queue->wait_for(c.call->done));
    return bp_status{BP_OK};
  });
}

bp_status abort_group(void* self, bp_process_group* handle) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    const LocalGroup& group = living_group(g, handle, "abort");
    group.world->end({BP_ABORTED, "rank " + std::to_string(group.rank) + " aborted the group"});
    return bp_status{BP_OK};
  });
}

bp_status status(void* self, bp_process_group* handle) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    const Outcome ended = living_group(g, handle, "status").world->status();
    if (ended.status == BP_OK) return bp_status{BP_OK};
    return g.host().set_error(g.host().self, ended.status, ended.text.c_str());
  });
}

bp_status rank(void* self, bp_process_group* handle, uint32_t* out_rank, uint32_t* out_world_size) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    const LocalGroup& group = living_group(g, handle, "rank");
    give_rank(group, out_rank, out_world_size);
    return bp_status{BP_OK};
  });
}

// All ranks of a world live in this process.
std::vector<uint32_t> local_ranks(const World& world) {
  std::vector<uint32_t> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0u);
  return ranks;
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status split(void* self, uint32_t local_count, bp_process_group* const* handles,
                const uint32_t* colors, const uint32_t* keys, uint64_t /*timeout_ns*/,
                bp_process_group** out_groups) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    const auto groups = read_groups<LocalGroup>(local_count, handles, "split");
    for (const LocalGroup* group : groups) require_group(g, *group, "split");
    require(colors, "split: colors");
    require(keys, "split: keys");
    require(out_groups, "split: out_groups");
    const World& world = *groups[0]->world;
    check_presence(ranks_of(groups), local_ranks(world), {}, "split");
    check_not_ended(world.status(), "split: ");
    std::map<uint32_t, std::vector<uint32_t>> parts;
    for (uint32_t i = 0; i < local_count; ++i) parts[colors[i]].push_back(i);
    std::vector<bp_process_group*> made(local_count);
    for (auto& [color, members] : parts) {
      if (color == UINT32_MAX) continue;
      std::ranges::sort(members, {},
                        [&](uint32_t i) { return std::pair(keys[i], groups[i]->rank); });
      std::vector<bp_device*> devices;
      for (const uint32_t i : members) devices.push_back(groups[i]->device);
      const auto part = make_groups(g, devices, world.timeout_ns());
      for (size_t rank = 0; rank < members.size(); ++rank) made[members[rank]] = part[rank];
    }
    std::ranges::copy(made, out_groups);
    return bp_status{BP_OK};
  });
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status shrink(void* self, uint32_t local_count, bp_process_group* const* handles,
                 uint32_t gone_count, const uint32_t* gone_ranks, uint64_t /*timeout_ns*/,
                 bp_process_group** out_groups) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    const auto groups = read_groups<LocalGroup>(local_count, handles, "shrink");
    for (const LocalGroup* group : groups) require_group(g, *group, "shrink");
    require(out_groups, "shrink: out_groups");
    World& world = *groups[0]->world;
    const std::vector<uint32_t> gone = read_gone_ranks(gone_count, gone_ranks, world.size());
    check_presence(ranks_of(groups), local_ranks(world), gone, "shrink");
    std::vector<bp_device*> devices(local_count);
    for (const LocalGroup* group : groups) {
      devices[rank_without(gone, group->rank)] = group->device;
    }
    const auto made = make_groups(g, devices, world.timeout_ns());
    for (uint32_t i = 0; i < local_count; ++i) {
      out_groups[i] = made[rank_without(gone, groups[i]->rank)];
    }
    world.end({BP_ABORTED, "the group was shrunk"});
    return bp_status{BP_OK};
  });
}

// The functions only check the range, because host memory needs no preparation.
void check_buffer(LocalGroups& g, const LocalGroup& group, const bp_buffer_ref* range,
                  const char* call) {
  if (range == nullptr) refuse(BP_INVALID_ARGUMENT, std::string(call) + ": range is NULL");
  static_cast<void>(g.backend().memory(*range, group.device, true, call, "range"));
}

bp_status register_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&] {
    check_buffer(g, living_group(g, handle, "register_buffer"), range, "register_buffer");
    return bp_status{BP_OK};
  });
}

// There is nothing to end, also if the device was lost.
bp_status deregister_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range) {
  LocalGroups& g = groups_of(self);
  return guarded(g.host(), [&]() -> bp_status {
    const LocalGroup& group = group_of(handle, "deregister_buffer");
    try {
      check_buffer(g, group, range, "deregister_buffer");
    } catch (const StatusError& e) {
      if (e.status() != BP_DEVICE_LOST) throw;
    }
    return BP_OK;
  });
}

}  // namespace

bp_process_group_ops LocalGroups::table() {
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
          .split = split,
          .shrink = shrink,
          .register_buffer = register_buffer,
          .deregister_buffer = deregister_buffer,
          .rank = rank};
}

}  // namespace bp
