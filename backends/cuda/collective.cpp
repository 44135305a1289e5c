// The table of process groups. Its entries check the host's arguments, and submit calls.
#include "backends/cuda/collective.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "backends/cuda/collective_world.hpp"
#include "backends/cuda/engines.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/nccl_launch.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cuda {
namespace {

constexpr size_t kScratchBytes = 8;
constexpr const char* kTableName = "nccl";

const Nccl& nccl_of(Collectives& c) {
  Libraries& libraries = c.instance().engines->libraries();
  const Nccl* const nccl = libraries.nccl();
  if (nccl == nullptr) refuse(BP_UNSUPPORTED, "create: " + libraries.nccl_reason());
  return *nccl;
}

// ---- Making groups ------------------------------------------------------------------------------

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    require(theirs, "create: desc");
    require(out_groups, "create: out_groups");
    const auto desc = read_desc(theirs, kFirstSize<bp_process_group_desc>,
                                BP_STRUCT_PROCESS_GROUP_DESC, "create");
    check_group_desc(desc);
    const NcclOptions options = read_nccl_options(desc, kTableName);
    if (desc.local_count != desc.world_size && desc.store == nullptr) {
      refuse(BP_INVALID_ARGUMENT,
             "create: store is NULL; it may be NULL only if all ranks live in this process");
    }
    WorldPlan plan;
    for (uint32_t i = 0; i < desc.local_count; ++i) {
      plan.devices.push_back(&device_of(c.instance(), desc.devices[i], "create"));
      plan.ranks.push_back(desc.ranks[i]);
    }
    check_devices(plan);
    plan.world_size = desc.world_size;
    plan.store = desc.local_count == desc.world_size ? nullptr : desc.store;
    if (plan.store != nullptr) check_offer(plan.store, kFirstSize<bp_store>, "create: store");
    plan.prefix = desc.key_prefix == nullptr ? "" : desc.key_prefix;
    plan.timeout_ns = desc.timeout_ns;
    plan.options = options;
    const auto world = make_world(c, nccl_of(c), plan, "create");
    for (uint32_t i = 0; i < desc.local_count; ++i) {
      out_groups[i] = face(world, world->members()[i].get());
    }
    return BP_OK;
  });
}

bp_status destroy(void* self, bp_process_group* handle) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    if (handle == nullptr) return BP_OK;
    Group& group = group_of(handle, "destroy");
    c.watch().close(group.world, *group.member);
    group.magic = 0;
    delete &group;
    return BP_OK;
  });
}

bp_status supports(void* self, bp_process_group* handle, bp_collective_kind kind,
                   bp_reduction reduction, bp_dtype dtype) {
  return entry_of(self, [&](Collectives&) -> bp_status {
    static_cast<void>(group_of(handle, "supports"));
    const std::string reason = refuse_nccl_call(kind, reduction, dtype);
    if (!reason.empty()) refuse(BP_UNSUPPORTED, "supports: " + reason);
    return BP_OK;
  });
}

// ---- Submitting ---------------------------------------------------------------------------------

std::byte* range_of(const bp_buffer_ref& range, const Device& device, uint64_t elements,
                    bp_dtype dtype, const std::string& name, const char* what) {
  if (elements == 0) return address_of(range);
  const Buffer& buffer = buffer_of(range.buffer, "submit", what);
  check_same_device(buffer.device, &device, "submit", what);
  if (!is_inside(range, buffer.size_bytes)) refuse_range(range, buffer.size_bytes, name + what);
  check_elements(range, elements, dtype, name, what);
  return address_of(range);
}

NcclSubmission check_call(Collectives& c, const bp_collective_call* at, uint64_t index) {
  const std::string name = "submit: call " + std::to_string(index) + ": ";
  const auto theirs =
      read_desc(at, kFirstSize<bp_collective_call>, BP_STRUCT_COLLECTIVE_CALL, "submit");
  const Group& group = group_of(theirs.group, "submit");
  if (std::string why = refuse_nccl_call(theirs.kind, theirs.reduction, theirs.dtype);
      !why.empty()) {
    refuse(BP_UNSUPPORTED, name + why);
  }
  check_not_ended(group.world->status(), name);
  NcclSubmission checked;
  checked.world = group.world;
  checked.member = group.member;
  checked.timeout_ns = theirs.timeout_ns == 0 ? group.world->timeout_ns() : theirs.timeout_ns;
  NcclCall& call = checked.call;
  static_cast<GroupCall&>(call) = read_call(theirs, group.member->rank, group.world->size(), name);
  call.is_even =
      std::ranges::all_of(call.send_counts, [&](uint64_t n) { return n == call.send_counts[0]; });
  const Device& device = *group.member->device;
  Lane& lane = lane_of(theirs.stream, "submit");
  check_same_device(&lane.device(), &device, "submit", "stream");
  c.instance().captures->refuse_collective(theirs.stream, name);
  checked.lane = lane.shared_from_this();
  call.send = range_of(theirs.send, device, sent_elements(call), call.dtype, name, "send");
  call.receive =
      range_of(theirs.receive, device, received_elements(call), call.dtype, name, "receive");
  return checked;
}

// Refuses calls of local ranks that do not match, before any call can hang.
void check_signatures(std::vector<NcclSubmission>& calls) {
  for (NcclSubmission& c : calls) {
    if (is_between_peers(c.call.kind)) continue;
    uint64_t count = 0;  // A rank knows only its own uneven counts.
    if (c.call.is_even && c.call.kind != BP_COLLECTIVE_ALL_TO_ALL) count = c.call.send_counts[0];
    const uint32_t root = has_root(c.call.kind) ? c.call.root : 0;
    c.world->check_signature(c.member->next_sequence,
                             {c.call.kind, c.call.reduction, c.call.dtype, root, count},
                             c.member->rank);
    ++c.member->next_sequence;
  }
}

bp_status submit(void* self, uint64_t call_count, const bp_collective_call* calls,
                 uint64_t call_stride_bytes) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    if (call_count == 0) return BP_OK;
    require(calls, "submit: calls");
    std::vector<NcclSubmission> checked;
    const auto* at = reinterpret_cast<const std::byte*>(calls);
    for (uint64_t i = 0; i < call_count; ++i, at += call_stride_bytes) {
      check_stride(at, call_stride_bytes, "submit: call_stride_bytes");
      checked.push_back(check_call(c, reinterpret_cast<const bp_collective_call*>(at), i));
    }
    for (const NcclSubmission& call : checked) {
      if (const bp_status status = call.lane->admit(); status != BP_OK) return status;
    }
    check_signatures(checked);
    // Each rank has its own thread, so the order between ranks does not matter.
    std::map<NcclMember*, std::vector<NcclSubmission>> by_member;
    for (NcclSubmission& call : checked) by_member[call.member].push_back(std::move(call));
    for (auto& [member, theirs] : by_member) launch_calls(c.watch(), std::move(theirs));
    return BP_OK;
  });
}

bp_status abort_group(void* self, bp_process_group* handle) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    const Group& group = group_of(handle, "abort");
    c.watch().end(group.world, {BP_ABORTED, "rank " + std::to_string(group.member->rank) +
                                                " aborted the group"});
    return BP_OK;
  });
}

bp_status status(void* self, bp_process_group* handle) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    NcclWorld& world = *group_of(handle, "status").world;
    world.look_for_end();
    const Outcome ended = world.status();
    return ended.status == BP_OK ? bp_status{BP_OK} : c.instance().fail(ended.status, ended.text);
  });
}

bp_status rank(void* self, bp_process_group* handle, uint32_t* out_rank, uint32_t* out_world_size) {
  return entry_of(self, [&](Collectives&) -> bp_status {
    give_rank(group_of(handle, "rank"), out_rank, out_world_size);
    return BP_OK;
  });
}

}  // namespace

Collectives::~Collectives() {
  watch_.reset();
  for (const auto& taken : scratch_) {
    taken.first->quietly([&](const Driver& driver) { driver.cudaFree(taken.second); });
  }
}

void* Collectives::scratch(Device& device) {
  const std::lock_guard lock(mutex_);
  void*& address = scratch_[&device];
  if (address == nullptr) {
    check(device.driver(), device.driver().cudaMalloc(&address, kScratchBytes), "cudaMalloc");
  }
  return address;
}

bp_process_group_ops Collectives::table() {
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
          .register_buffer = nullptr,
          .deregister_buffer = nullptr,
          .rank = rank};
}

}  // namespace bp::cuda
