// The table of process groups: checks what the host hands in, makes communicators, and submits.
#include "backends/cuda/collective.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <unordered_set>

#include "backends/common/capture.hpp"
#include "backends/common/shape.hpp"
#include "backends/cuda/engines.hpp"
#include "backends/cuda/memory.hpp"

namespace bp::cuda {
namespace {

constexpr const char* kIdKey = "nccl/id";
constexpr size_t kScratchBytes = 8;

Collectives& collectives(void* self) { return *static_cast<Collectives*>(self); }

template <typename Body>
bp_status entry_of(void* self, Body&& body) {
  Collectives& c = collectives(self);
  return guarded(*c.instance().host, [&]() -> bp_status { return body(c); });
}

Group& group_of(bp_process_group* handle, const char* call) {
  auto* const group = reinterpret_cast<Group*>(handle);
  if (group == nullptr || group->magic != Group::kMagic) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": group is not a group of this backend");
  }
  return *group;
}

bp_process_group* face(const std::shared_ptr<NcclWorld>& world, NcclMember* member) {
  return reinterpret_cast<bp_process_group*>(new Group{.world = world, .member = member});
}

const Nccl& nccl_of(Collectives& c) {
  Libraries& libraries = c.instance().engines->libraries();
  const Nccl* const nccl = libraries.nccl();
  if (nccl == nullptr) refuse(BP_UNSUPPORTED, "create: " + libraries.nccl_reason());
  return *nccl;
}

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// ---- Making worlds ------------------------------------------------------------------------------

// Who takes part, where, and how they find each other.
struct Plan {
  std::vector<Device*> devices;
  std::vector<uint32_t> ranks;
  uint32_t world_size = 0;
  const bp_store* store = nullptr;  // NULL if all ranks are here.
  std::string prefix;
  uint64_t timeout_ns = 0;
};

void check_desc(const bp_process_group_desc& desc) {
  if (desc.local_count == 0 || desc.devices == nullptr || desc.ranks == nullptr) {
    refuse(BP_INVALID_ARGUMENT, "create: the desc lists no devices or ranks");
  }
  if (desc.local_count > desc.world_size) {
    refuse(BP_INVALID_ARGUMENT, "create: " + std::to_string(desc.local_count) + " ranks of " +
                                    std::to_string(desc.world_size));
  }
  std::unordered_set<uint32_t> seen;
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    if (desc.ranks[i] >= desc.world_size) {
      refuse(BP_INVALID_ARGUMENT, "create: rank " + std::to_string(desc.ranks[i]) + " of " +
                                      std::to_string(desc.world_size));
    }
    if (!seen.insert(desc.ranks[i]).second) {
      refuse(BP_INVALID_ARGUMENT,
             "create: rank " + std::to_string(desc.ranks[i]) + " occurs twice");
    }
  }
  if (desc.local_count != desc.world_size && desc.store == nullptr) {
    refuse(BP_INVALID_ARGUMENT, "create: some ranks are elsewhere, and the desc has no store");
  }
}

void check_devices(const Plan& plan) {
  std::unordered_set<Device*> seen;
  for (Device* device : plan.devices) {
    if (!seen.insert(device).second) {
      refuse(BP_UNSUPPORTED, "create: device " + std::to_string(device->ordinal()) +
                                 " has two ranks; NCCL takes one rank for each device");
    }
  }
}

// All ranks of a world know one number, which the process of rank 0 makes.
ncclUniqueId unique_id(const Nccl& nccl, const Plan& plan, const char* call) {
  ncclUniqueId id{};
  const std::string key = plan.prefix + kIdKey;
  const bool is_first = std::ranges::find(plan.ranks, 0u) != plan.ranks.end();
  if (is_first) check(nccl, nccl.get_unique_id(&id), "ncclGetUniqueId");
  if (plan.store == nullptr) return id;
  const bp_store& store = *plan.store;
  if (is_first) {
    if (store.put(store.self, key.c_str(), &id, sizeof(id)) != BP_OK) {
      refuse(BP_INTERNAL, std::string(call) + ": the store does not take \"" + key + "\"");
    }
    return id;
  }
  uint64_t size_bytes = 0;
  const bp_status status =
      store.get(store.self, key.c_str(), plan.timeout_ns, sizeof(id), &id, &size_bytes);
  if (status == BP_TIMEOUT) {
    refuse(BP_TIMEOUT, std::string(call) + ": rank 0 did not come within the timeout");
  }
  if (status != BP_OK || size_bytes != sizeof(id)) {
    refuse(BP_INTERNAL, std::string(call) + ": the store gives no id for \"" + key + "\"");
  }
  return id;
}

std::vector<NcclMember*> members_of(NcclWorld& world) {
  std::vector<NcclMember*> members;
  for (const auto& member : world.members()) members.push_back(member.get());
  return members;
}

// Runs body(member) for each member within one group of NCCL. Throws StatusError, with the group
// closed.
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

// A sum of one element each: what ranks need to reach each other is made now, and not by the first
// call, which must not wait.
void meet(Collectives& c, NcclWorld& world, NcclClock::time_point deadline, const char* call) {
  const std::vector<NcclMember*> members = members_of(world);
  std::vector<std::shared_ptr<Lane>> lanes;
  for (NcclMember* member : members) {
    lanes.push_back(make_lane(*member->device, 0));
    const Current current(*member->device);
    member->scratch = c.scratch(*member->device);
  }
  size_t next = 0;
  in_group(world.nccl(), members, [&](NcclMember& m) {
    check(world.nccl(),
          world.nccl().all_reduce(m.scratch, m.scratch, 1, ncclInt32, ncclSum, m.comm,
                                  lanes[next++]->native()),
          "ncclAllReduce");
  });
  world.wait_ready(members, deadline, call);
  for (const std::shared_ptr<Lane>& lane : lanes) {
    if (!wait_until(deadline, [&] { return lane->is_done(); })) {
      refuse(BP_TIMEOUT, std::string(call) + ": not every rank came within the timeout");
    }
  }
}

std::shared_ptr<NcclWorld> make_world(Collectives& c, const Nccl& nccl, const Plan& plan,
                                      const char* call) {
  const auto deadline = deadline_of(plan.timeout_ns);
  auto world =
      std::make_shared<NcclWorld>(nccl, plan.world_size, plan.timeout_ns, plan.store, plan.prefix);
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    auto member = std::make_unique<NcclMember>();
    member->rank = plan.ranks[i];
    member->device = plan.devices[i];
    world->members().push_back(std::move(member));
  }
  const ncclUniqueId id = unique_id(nccl, plan, call);
  in_group(nccl, members_of(*world), [&](NcclMember& m) {
    ncclConfig_t config = configuration();
    check(nccl,
          nccl.init_rank(&m.comm, static_cast<int>(plan.world_size), id, static_cast<int>(m.rank),
                         &config),
          "ncclCommInitRankConfig");
  });
  world->wait_ready(members_of(*world), deadline, call);
  meet(c, *world, deadline, call);
  return world;
}

bp_status create(void* self, const bp_process_group_desc* theirs, bp_process_group** out_groups) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    require(theirs, "create: desc");
    require(out_groups, "create: out_groups");
    constexpr uint32_t kFirst = offsetof(bp_process_group_desc, timeout_ns) + sizeof(uint64_t);
    const auto desc = read_desc(theirs, kFirst, BP_STRUCT_PROCESS_GROUP_DESC, "create");
    check_desc(desc);
    Plan plan;
    for (uint32_t i = 0; i < desc.local_count; ++i) {
      plan.devices.push_back(&device_of(c.instance(), desc.devices[i], "create"));
      plan.ranks.push_back(desc.ranks[i]);
    }
    check_devices(plan);
    plan.world_size = desc.world_size;
    plan.store = desc.local_count == desc.world_size ? nullptr : desc.store;
    plan.prefix = desc.key_prefix == nullptr ? "" : desc.key_prefix;
    plan.timeout_ns = desc.timeout_ns;
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

// One call that was looked at.
struct Checked {
  std::shared_ptr<NcclWorld> world;
  NcclMember* member = nullptr;
  std::shared_ptr<Lane> lane;
  NcclCall call;
  uint64_t timeout_ns = 0;
};

std::byte* range_of(const bp_buffer_ref& range, const Device& device, uint64_t elements,
                    bp_dtype dtype, const char* what) {
  if (elements == 0) return address_of(range);
  const std::string name = std::string("submit: ") + what;
  const Buffer& buffer = buffer_of(range.buffer, "submit", what);
  if (buffer.device != &device) {
    refuse(BP_INVALID_ARGUMENT, name + " is one of another device than the group's");
  }
  if (range.byte_offset > buffer.size_bytes ||
      range.size_bytes > buffer.size_bytes - range.byte_offset) {
    refuse(BP_INVALID_ARGUMENT, name + " leaves its buffer");
  }
  const auto item = static_cast<uint64_t>(dtype_size_bytes(dtype));
  if (elements > range.size_bytes / item) {
    refuse(BP_INVALID_ARGUMENT, name + " has " + std::to_string(range.size_bytes) +
                                    " bytes; the call needs " + std::to_string(elements) +
                                    " elements of " + std::to_string(item));
  }
  return address_of(range);
}

void check_root(const NcclCall& call, const std::string& name) {
  const bool has_root = call.kind == BP_COLLECTIVE_REDUCE || call.kind == BP_COLLECTIVE_BROADCAST ||
                        call.kind == BP_COLLECTIVE_GATHER || call.kind == BP_COLLECTIVE_SCATTER ||
                        is_between_peers(call.kind);
  if (call.kind == BP_COLLECTIVE_RECEIVE && call.root == BP_RANK_ANY) {
    refuse(BP_UNSUPPORTED, name + "NCCL receives from one rank, and not from whoever sends first");
  }
  if (has_root && call.root >= call.world_size) {
    refuse(BP_INVALID_ARGUMENT, name + "root is " + std::to_string(call.root) + "; the group has " +
                                    std::to_string(call.world_size) + " ranks");
  }
}

void read_counts(const bp_collective_call& theirs, NcclCall& call) {
  const uint32_t size = call.world_size;
  call.counts.assign(size, theirs.count);
  if (theirs.counts != nullptr) call.counts.assign(theirs.counts, theirs.counts + size);
  call.receive_counts = call.counts;
  if (theirs.receive_counts != nullptr) {
    call.receive_counts.assign(theirs.receive_counts, theirs.receive_counts + size);
  }
  call.is_even = std::ranges::all_of(call.counts, [&](uint64_t n) { return n == call.counts[0]; });
}

Checked check_call(Collectives& c, const bp_collective_call* at, uint64_t index) {
  const std::string name = "submit: call " + std::to_string(index) + ": ";
  constexpr uint32_t kFirst = offsetof(bp_collective_call, root) + sizeof(uint32_t);
  const auto theirs = read_desc(at, kFirst, BP_STRUCT_COLLECTIVE_CALL, "submit");
  const Group& group = group_of(theirs.group, "submit");
  if (std::string why = refuse_nccl_call(theirs.kind, theirs.reduction, theirs.dtype);
      !why.empty()) {
    refuse(BP_UNSUPPORTED, name + why);
  }
  if (const Outcome ended = group.world->status(); ended.status != BP_OK) {
    refuse(ended.status, name + "the group has ended: " + ended.text);
  }
  Checked checked;
  checked.world = group.world;
  checked.member = group.member;
  checked.timeout_ns = theirs.timeout_ns == 0 ? group.world->timeout_ns() : theirs.timeout_ns;
  NcclCall& call = checked.call;
  call.kind = theirs.kind;
  call.reduction = reduces(theirs.kind) ? theirs.reduction : 0;
  call.dtype = theirs.dtype;
  call.rank = group.member->rank;
  call.world_size = group.world->size();
  call.root = theirs.root;
  call.tag = theirs.tag;
  call.scale = theirs.scale;
  read_counts(theirs, call);
  check_root(call, name);
  const Device& device = *group.member->device;
  Lane& lane = lane_of(theirs.stream, "submit");
  if (&lane.device() != &device) {
    refuse(BP_INVALID_ARGUMENT, "submit: stream is one of another device than the group's");
  }
  if (c.instance().captures->is_capturing(theirs.stream)) {
    refuse(BP_UNSUPPORTED, name + "the stream captures, and collectives are not recorded");
  }
  checked.lane = lane.shared_from_this();
  call.send = range_of(theirs.send, device, sent_elements(call), call.dtype, "send");
  call.receive = range_of(theirs.receive, device, received_elements(call), call.dtype, "receive");
  return checked;
}

// Ranks of one process that call different things are told before anything hangs.
void check_signatures(std::vector<Checked>& calls) {
  for (Checked& c : calls) {
    if (is_between_peers(c.call.kind)) continue;
    uint64_t count = 0;  // Of all_to_all and uneven parts each rank knows its own alone.
    if (c.call.is_even && c.call.kind != BP_COLLECTIVE_ALL_TO_ALL) count = c.call.counts[0];
    const bool has_root =
        c.call.kind == BP_COLLECTIVE_REDUCE || c.call.kind == BP_COLLECTIVE_BROADCAST ||
        c.call.kind == BP_COLLECTIVE_GATHER || c.call.kind == BP_COLLECTIVE_SCATTER;
    c.world->check_signature(
        c.member->next_sequence,
        {c.call.kind, c.call.reduction, c.call.dtype, has_root ? c.call.root : 0, count},
        c.member->rank);
    ++c.member->next_sequence;
  }
}

// Submits calls as one group, and waits until NCCL has handed them to their streams: what it may
// still do in the background would else come behind what is submitted next. Ends the worlds of
// calls that fail.
void issue(NcclWatch& watch, const std::vector<Checked>& calls) {
  const Nccl& nccl = calls[0].world->nccl();
  std::vector<std::unique_ptr<NcclReductions>> reductions;
  auto deadline = NcclClock::time_point::max();
  Outcome failure;
  check(nccl, nccl.group_start(), "ncclGroupStart");
  try {
    for (const Checked& c : calls) {
      deadline = std::min(deadline, deadline_of(c.timeout_ns));
      const Current current(*c.member->device);
      const std::lock_guard lock(c.member->mutex);
      if (c.member->comm == nullptr) refuse(BP_ABORTED, "submit: the group has ended");
      reductions.push_back(std::make_unique<NcclReductions>(nccl, c.member->comm));
      submit_nccl_call(nccl, c.member->comm, *reductions.back(), c.call, c.member->scratch,
                       c.lane->native());
    }
  } catch (const StatusError& e) {
    failure = {e.status(), e.what()};
  }
  const ncclResult_t ended = nccl.group_end();
  try {
    if (failure.status != BP_OK) refuse(failure.status, failure.text);
    check(nccl, ended, "ncclGroupEnd");
    for (const Checked& c : calls) {
      c.world->wait_ready({c.member}, deadline, collective_name(c.call.kind));
    }
    for (const Checked& c : calls) {
      auto event = std::make_unique<NativeEvent>(*c.member->device, false);
      const Current current(*c.member->device);
      const Driver& driver = c.member->device->driver();
      check(driver, driver.cudaEventRecord(event->get(), c.lane->native()), "cudaEventRecord");
      watch.add({c.world, c.member, c.lane, std::move(event), deadline_of(c.timeout_ns),
                 collective_name(c.call.kind)});
    }
  } catch (const StatusError& e) {
    for (const Checked& c : calls) {
      c.lane->fail(e.status(), e.what());
      watch.end(c.world, {e.status(), e.what()});
    }
  }
}

// Sends and receives of one group of calls pair up by their tags, which NCCL does not know: both
// sides submit them in the order of the tags.
void order_by_tag(std::vector<Checked>& calls) {
  std::ranges::stable_sort(calls, {}, [](const Checked& c) {
    return is_between_peers(c.call.kind) ? c.call.tag : uint64_t{0};
  });
}

bp_status submit(void* self, uint64_t call_count, const bp_collective_call* calls,
                 uint64_t call_stride_bytes) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    if (call_count == 0) return BP_OK;
    require(calls, "submit: calls");
    std::vector<Checked> checked;
    const auto* at = reinterpret_cast<const std::byte*>(calls);
    for (uint64_t i = 0; i < call_count; ++i, at += call_stride_bytes) {
      check_stride(at, call_stride_bytes, "submit: call_stride_bytes");
      checked.push_back(check_call(c, reinterpret_cast<const bp_collective_call*>(at), i));
    }
    for (const Checked& call : checked) {
      if (const bp_status status = call.lane->surface(); status != BP_OK) return status;
    }
    check_signatures(checked);
    order_by_tag(checked);
    // What goes to streams that are held back goes there later, each stream's on its own:
    // communicators do not block, so that the order between ranks does not matter.
    std::vector<Checked> now;
    std::map<Lane*, std::vector<Checked>> later;
    for (Checked& call : checked) {
      if (call.lane->is_free()) {
        now.push_back(std::move(call));
      } else {
        later[call.lane.get()].push_back(std::move(call));
      }
    }
    for (auto& [lane, held] : later) {
      const auto batch = std::make_shared<std::vector<Checked>>(std::move(held));
      static_cast<void>(lane->hold([&c, batch] { issue(c.watch(), *batch); }));
    }
    if (!now.empty()) issue(c.watch(), now);
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

// ---- Parts of groups ----------------------------------------------------------------------------

// The handles of split() and shrink(): all are of one world, each once. Throws StatusError.
std::vector<Group*> read_groups(uint32_t count, bp_process_group* const* handles,
                                const char* call) {
  if (handles == nullptr || count == 0) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": no groups are given");
  }
  std::vector<Group*> groups;
  for (uint32_t i = 0; i < count; ++i) {
    groups.push_back(&group_of(handles[i], call));
    if (groups[i]->world != groups[0]->world) {
      refuse(BP_INVALID_ARGUMENT,
             std::string(call) + ": group " + std::to_string(i) + " is one of other ranks");
    }
  }
  if (count != groups[0]->world->members().size()) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + std::to_string(count) + " of the " +
                                    std::to_string(groups[0]->world->members().size()) +
                                    " ranks of this process");
  }
  return groups;
}

// NCCL's colors and keys are ints, and one below 0 means to stay out.
int split_word(uint32_t word, const char* what) {
  if (word == UINT32_MAX && std::string_view(what) == "color") return NCCL_SPLIT_NOCOLOR;
  if (word > INT32_MAX) {
    refuse(BP_UNSUPPORTED, std::string("split: a ") + what + " is above 2^31 - 1");
  }
  return static_cast<int>(word);
}

bp_status split(void* self, uint32_t local_count, bp_process_group* const* handles,
                const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                bp_process_group** out_groups) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    const std::vector<Group*> groups = read_groups(local_count, handles, "split");
    require(colors, "split: colors");
    require(keys, "split: keys");
    require(out_groups, "split: out_groups");
    NcclWorld& from = *groups[0]->world;
    if (const Outcome ended = from.status(); ended.status != BP_OK) {
      refuse(ended.status, "split: the group has ended: " + ended.text);
    }
    const auto deadline = deadline_of(timeout_ns);
    const Nccl& nccl = from.nccl();
    // Each rank is a world of its own here, until NCCL has said how large the new ones are.
    std::vector<ncclComm_t> comms(local_count, nullptr);
    std::vector<NcclMember*> members;
    for (const Group* group : groups) members.push_back(group->member);
    size_t next = 0;
    in_group(nccl, members, [&](NcclMember& m) {
      ncclConfig_t config = configuration();
      const size_t i = next++;
      check(nccl,
            nccl.split(m.comm, split_word(colors[i], "color"), split_word(keys[i], "key"),
                       &comms[i], &config),
            "ncclCommSplit");
    });
    from.wait_ready(members, deadline, "split");
    const std::string prefix =
        from.prefix() + "split" + std::to_string(from.take_split_number()) + "/";
    std::map<uint32_t, std::shared_ptr<NcclWorld>> worlds;
    std::vector<std::pair<std::shared_ptr<NcclWorld>, NcclMember*>> made(local_count);
    for (uint32_t i = 0; i < local_count; ++i) {
      if (comms[i] == nullptr) continue;
      int rank = 0, size = 0;
      check(nccl, nccl.user_rank(comms[i], &rank), "ncclCommUserRank");
      check(nccl, nccl.count(comms[i], &size), "ncclCommCount");
      auto& world = worlds[colors[i]];
      if (world == nullptr) {
        world = std::make_shared<NcclWorld>(nccl, static_cast<uint32_t>(size), from.timeout_ns(),
                                            from.store(), prefix + std::to_string(colors[i]) + "/");
      }
      auto member = std::make_unique<NcclMember>();
      member->rank = static_cast<uint32_t>(rank);
      member->device = members[i]->device;
      member->comm = comms[i];
      made[i] = {world, member.get()};
      world->members().push_back(std::move(member));
    }
    for (const auto& [color, world] : worlds) {
      world->wait_ready(members_of(*world), deadline, "split");
      meet(c, *world, deadline, "split");
    }
    for (uint32_t i = 0; i < local_count; ++i) {
      out_groups[i] = made[i].first == nullptr ? nullptr : face(made[i].first, made[i].second);
    }
    return BP_OK;
  });
}

// Without the ranks that are gone a communicator is of no use any more, so a new one is made: its
// id goes through the store, under a key that names who is gone.
bp_status shrink(void* self, uint32_t local_count, bp_process_group* const* handles,
                 uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                 bp_process_group** out_groups) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    require(out_groups, "shrink: out_groups");
    if (gone_count != 0) require(gone_ranks, "shrink: gone_ranks");
    if (handles == nullptr || local_count == 0) {
      refuse(BP_INVALID_ARGUMENT, "shrink: no groups are given");
    }
    std::vector<const Group*> groups;
    for (uint32_t i = 0; i < local_count; ++i) groups.push_back(&group_of(handles[i], "shrink"));
    const std::shared_ptr<NcclWorld> from = groups[0]->world;
    std::vector<uint32_t> gone(gone_ranks, gone_ranks + gone_count);
    std::ranges::sort(gone);
    Plan plan;
    plan.prefix = from->prefix() + "shrink";
    for (const uint32_t rank : gone) plan.prefix += "-" + std::to_string(rank);
    plan.prefix += "/";
    plan.world_size = from->size() - gone_count;
    plan.store = from->store();
    plan.timeout_ns = timeout_ns;
    for (const Group* group : groups) {
      const uint32_t rank = group->member->rank;
      if (group->world != from) {
        refuse(BP_INVALID_ARGUMENT, "shrink: the groups are of different ranks");
      }
      if (std::ranges::binary_search(gone, rank)) {
        refuse(BP_INVALID_ARGUMENT, "shrink: rank " + std::to_string(rank) + " is listed as gone");
      }
      const auto before = std::ranges::lower_bound(gone, rank) - gone.begin();
      plan.devices.push_back(group->member->device);
      plan.ranks.push_back(rank - static_cast<uint32_t>(before));
    }
    if (plan.store == nullptr && plan.world_size != local_count) {
      refuse(BP_INVALID_ARGUMENT, "shrink: " + std::to_string(local_count) + " ranks stay and " +
                                      std::to_string(gone_count) + " are gone, of " +
                                      std::to_string(from->size()));
    }
    c.watch().end(from, {BP_ABORTED, "the group was shrunk"});
    const auto world = make_world(c, from->nccl(), plan, "shrink");
    for (uint32_t i = 0; i < local_count; ++i) {
      out_groups[i] = face(world, world->members()[i].get());
    }
    return BP_OK;
  });
}

}  // namespace

Collectives::~Collectives() {
  watch_.reset();
  for (const auto& [device, address] : scratch_) {
    device->quietly([&](const Driver& driver) { driver.cudaFree(address); });
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
          .create = create,
          .destroy = destroy,
          .supports = supports,
          .submit = submit,
          .abort = abort_group,
          .status = status,
          .split = split,
          .shrink = shrink};
}

}  // namespace bp::cuda
