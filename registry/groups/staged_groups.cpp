#include "registry/groups/staged_groups.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/read_desc.hpp"

namespace bp::core {
namespace {

constexpr const char* kTableName = "staged";
// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstDesc = offsetof(bp_process_group_desc, options) + sizeof(void*);

void destroy_inner(StagedGroups& groups, const std::vector<bp_process_group*>& inner) {
  for (bp_process_group* const group : inner) {
    static_cast<void>(groups.inner().destroy(groups.inner().self, group));
  }
}

// Ends a group and all that it made. Work that was submitted goes on.
bp_status end_group(StagedGroups& groups, StagedGroup* group) {
  const bp_stream_ops& streams = *groups.transport().streams;
  for (const auto& [device, transport] : group->streams) {
    static_cast<void>(streams.destroy(streams.self, transport));
  }
  const bp_status status = groups.inner().destroy(groups.inner().self, group->inner);
  group->magic = 0;
  delete group;
  return status;
}

bp_status find_targets(const StagedGroups& groups, const bp_process_group_desc& desc,
                       std::vector<const bp_target*>& out_targets) {
  if (desc.local_count != 0 && desc.devices == nullptr) return is_null("create: desc: devices");
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    out_targets.push_back(groups.target_of(desc.devices[i]));
    if (out_targets[i] == nullptr) {
      return fail(BP_INVALID_ARGUMENT, "create: desc: devices[" + std::to_string(i) +
                                           "] is NULL or not one of the backend of these groups");
    }
  }
  return BP_OK;
}

bp_status create_checked(StagedGroups& groups, bp_process_group_desc desc,
                         bp_process_group** out_groups) {
  const std::string_view name(desc.table_name == nullptr ? "" : desc.table_name);
  if (!name.empty() && name != kTableName) {
    return fail(BP_NOT_FOUND, "create: desc: table_name is \"" + std::string(name) +
                                  "\", and this is the table \"" + kTableName + "\"");
  }
  std::vector<const bp_target*> targets;
  bp_status status = find_targets(groups, desc, targets);
  if (status != BP_OK) return status;
  const std::vector<bp_device*> devices(desc.local_count, groups.transport().device);
  desc.devices = devices.data();
  desc.table_name = nullptr;
  std::vector<bp_process_group*> inner(desc.local_count), made(desc.local_count);
  status = groups.inner().create(groups.inner().self, &desc, inner.data());
  if (status != BP_OK) return status;
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    status = adopt_inner(groups, *targets[i], inner[i], made[i]);
    if (status == BP_OK) continue;
    destroy_inner(groups, {inner.begin() + i, inner.end()});
    for (uint32_t k = 0; k < i; ++k) {
      static_cast<void>(end_group(groups, find_staged(made[k], "create")));
    }
    return status;
  }
  std::ranges::copy(made, out_groups);
  return BP_OK;
}

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  return guarded([&]() -> bp_status {
    if (theirs == nullptr) return is_null("create: desc");
    if (out_groups == nullptr) return is_null("create: out_groups");
    bp_process_group_desc desc{};
    const bp_status status =
        read_desc(theirs, BP_STRUCT_PROCESS_GROUP_DESC, kFirstDesc, "create", desc);
    return status == BP_OK ? create_checked(staged_of(self), desc, out_groups) : status;
  });
}

// Runs body(groups, group) for a handle.
template <typename Body>
bp_status with_group(void* self, bp_process_group* handle, const char* call, Body&& body) {
  return guarded([&]() -> bp_status {
    StagedGroup* const group = find_staged(handle, std::string(call) + ": group");
    return group == nullptr ? bp_status{BP_INVALID_ARGUMENT} : body(staged_of(self), *group);
  });
}

bp_status destroy(void* self, bp_process_group* handle) {
  if (handle == nullptr) return BP_OK;
  return with_group(self, handle, "destroy", [](StagedGroups& groups, StagedGroup& group) {
    return end_group(groups, &group);
  });
}

bp_status supports(void* self, bp_process_group* handle, bp_collective_kind kind,
                   bp_reduction reduction, bp_dtype dtype) {
  return with_group(self, handle, "supports", [&](StagedGroups& groups, const StagedGroup& group) {
    return groups.inner().supports(groups.inner().self, group.inner, kind, reduction, dtype);
  });
}

bp_status abort_group(void* self, bp_process_group* handle) {
  return with_group(self, handle, "abort", [](StagedGroups& groups, const StagedGroup& group) {
    return groups.inner().abort(groups.inner().self, group.inner);
  });
}

bp_status status(void* self, bp_process_group* handle) {
  return with_group(self, handle, "status", [](StagedGroups& groups, const StagedGroup& group) {
    return groups.inner().status(groups.inner().self, group.inner);
  });
}

bp_status rank(void* self, bp_process_group* handle, uint32_t* out_rank, uint32_t* out_world_size) {
  return with_group(self, handle, "rank", [&](StagedGroups&, const StagedGroup& group) {
    if (out_rank == nullptr) return is_null("rank: out_rank");
    if (out_world_size == nullptr) return is_null("rank: out_world_size");
    *out_rank = group.rank;
    *out_world_size = group.world_size;
    return bp_status{BP_OK};
  });
}

// Memory of the device needs no preparation, because the transport never sees it.
bp_status check_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range,
                       const char* call) {
  return with_group(self, handle, call, [&](StagedGroups&, const StagedGroup&) {
    return range == nullptr ? is_null((std::string(call) + ": range").c_str()) : bp_status{BP_OK};
  });
}

bp_status register_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range) {
  return check_buffer(self, handle, range, "register_buffer");
}

bp_status deregister_buffer(void* self, bp_process_group* handle, const bp_buffer_ref* range) {
  return check_buffer(self, handle, range, "deregister_buffer");
}

}  // namespace

StagedGroup* find_staged(bp_process_group* handle, const std::string& what) {
  auto* const group = reinterpret_cast<StagedGroup*>(handle);
  if (group != nullptr && group->magic == StagedGroup::kMagic) return group;
  static_cast<void>(
      fail(BP_INVALID_ARGUMENT, what + (group == nullptr ? " is NULL" : " is no staged group")));
  return nullptr;
}

bp_status adopt_inner(StagedGroups& groups, const bp_target& target, bp_process_group* inner,
                      bp_process_group*& out_group) {
  auto made = std::make_unique<StagedGroup>(StagedGroup{.target = &target, .inner = inner});
  const bp_status status =
      groups.inner().rank(groups.inner().self, inner, &made->rank, &made->world_size);
  if (status == BP_OK) out_group = face(made.release());
  return status;
}

StagedGroups::StagedGroups(const Plugin& plugin, const bp_target& transport,
                           const bp_process_group_ops& inner)
    : plugin_(plugin),
      transport_(transport),
      inner_(inner),
      table_{.struct_size = sizeof(bp_process_group_ops),
             .struct_type = BP_STRUCT_PROCESS_GROUP_OPS,
             .next = nullptr,
             .self = this,
             .name = kTableName,
             .create = create,
             .destroy = destroy,
             .supports = supports,
             .submit = submit_staged,
             .abort = abort_group,
             .status = status,
             .split = split_staged,
             .shrink = shrink_staged,
             .register_buffer = register_buffer,
             .deregister_buffer = deregister_buffer,
             .rank = rank} {}

const bp_target* StagedGroups::target_of(const bp_device* device) const {
  for (const auto& target : plugin_.targets) {
    if (device != nullptr && target->device == device) return target.get();
  }
  return nullptr;
}

}  // namespace bp::core
