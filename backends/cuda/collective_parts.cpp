// Splits process groups by color, and shrinks them by the ranks that are gone.
#include <algorithm>
#include <map>
#include <string_view>

#include "backends/cuda/collective_world.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cuda {
namespace {

std::vector<uint32_t> local_ranks(NcclWorld& world) {
  std::vector<uint32_t> ranks;
  for (const auto& member : world.members()) ranks.push_back(member->rank);
  return ranks;
}

// A timeout of 0 is that of the group.
uint64_t timeout_of(const NcclWorld& world, uint64_t timeout_ns) {
  return timeout_ns == 0 ? world.timeout_ns() : timeout_ns;
}

// Converts a color or key. Those of NCCL are ints, and a negative one means to stay out.
int split_word(uint32_t word, const char* what) {
  if (word == UINT32_MAX && std::string_view(what) == "color") return NCCL_SPLIT_NOCOLOR;
  if (word > INT32_MAX) {
    refuse(BP_UNSUPPORTED, std::string("split: a ") + what + " is above 2^31 - 1");
  }
  return static_cast<int>(word);
}

// What the ranks of this process give to a split, as NCCL has it.
struct SplitWords {
  std::vector<int> colors, keys;
};

SplitWords read_words(uint32_t count, const uint32_t* colors, const uint32_t* keys) {
  SplitWords words;
  for (uint32_t i = 0; i < count; ++i) {
    words.colors.push_back(split_word(colors[i], "color"));
    words.keys.push_back(split_word(keys[i], "key"));
  }
  return words;
}

// Splits the communicators of `members`. Returns one new communicator for each, which is NULL for a
// rank that stays out. If a rank does not come, NCCL stays at the split and the communicators
// cannot be used any more, so the world ends.
std::vector<ncclComm_t> split_communicators(Collectives& c, const std::shared_ptr<NcclWorld>& from,
                                            const std::vector<NcclMember*>& members,
                                            const SplitWords& words,
                                            NcclClock::time_point deadline) {
  const Nccl& nccl = from->nccl();
  const auto is_launching = [&](NcclMember* member) { return c.watch().is_launching(*member); };
  if (!wait_until(deadline, [&] { return std::ranges::none_of(members, is_launching); })) {
    refuse(BP_TIMEOUT, "split: earlier calls have not begun within the timeout");
  }
  size_t next = 0;
  in_group(nccl, members, [&](NcclMember& m) {
    ncclConfig_t config = configuration(from->options());
    const size_t i = next++;
    check(nccl,
          nccl.split(m.comm, words.colors[i], words.keys[i], &m.children.emplace_back(), &config),
          "ncclCommSplit");
  });
  try {
    from->wait_ready(members, deadline, "split");
  } catch (const StatusError& e) {
    c.watch().end(from, {e.status(), e.what()});
    throw;
  }
  std::vector<ncclComm_t> comms;
  for (NcclMember* member : members) {
    const std::lock_guard lock(member->mutex);
    comms.push_back(member->children.empty() ? nullptr : member->children.back());
    member->children.clear();
  }
  return comms;
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): the signature is the table's.
bp_status split_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    const std::vector<Group*> groups = read_groups<Group>(local_count, handles, "split");
    require(colors, "split: colors");
    require(keys, "split: keys");
    require(out_groups, "split: out_groups");
    const std::shared_ptr<NcclWorld> world_before = groups[0]->world;
    NcclWorld& from = *world_before;
    check_presence(ranks_of(groups), local_ranks(from), {}, "split");
    check_not_ended(from.status(), "split: ");
    const SplitWords words = read_words(local_count, colors, keys);
    const auto deadline = deadline_of(timeout_of(from, timeout_ns));
    const Nccl& nccl = from.nccl();
    std::vector<NcclMember*> members;
    members.reserve(groups.size());
    for (const Group* group : groups) members.push_back(group->member);
    const std::vector<ncclComm_t> comms =
        split_communicators(c, world_before, members, words, deadline);
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
                                            from.store(), prefix + std::to_string(colors[i]) + "/",
                                            from.options());
      }
      auto member = make_member(c, static_cast<uint32_t>(rank), *members[i]->device);
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

// A communicator that lacks ranks cannot be used, so a new one is made. Its id goes through the
// store, under a key that names the ranks that are gone.
// NOLINTNEXTLINE(readability-function-size): the signature is the table's.
bp_status shrink_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups) {
  return entry_of(self, [&](Collectives& c) -> bp_status {
    const std::vector<Group*> groups = read_groups<Group>(local_count, handles, "shrink");
    require(out_groups, "shrink: out_groups");
    const std::shared_ptr<NcclWorld> from = groups[0]->world;
    const std::vector<uint32_t> gone = read_gone_ranks(gone_count, gone_ranks, from->size());
    check_presence(ranks_of(groups), local_ranks(*from), gone, "shrink");
    WorldPlan plan;
    plan.prefix = from->prefix() + "shrink";
    for (const uint32_t rank : gone) plan.prefix += "-" + std::to_string(rank);
    plan.prefix += "/";
    plan.world_size = from->size() - gone_count;
    plan.store = from->store();
    plan.timeout_ns = timeout_of(*from, timeout_ns);
    plan.options = from->options();
    for (const Group* group : groups) {
      plan.devices.push_back(group->member->device);
      plan.ranks.push_back(rank_without(gone, group->member->rank));
    }
    c.watch().end(from, {BP_ABORTED, "the group was shrunk"});
    const auto world = make_world(c, from->nccl(), plan, "shrink");
    for (uint32_t i = 0; i < local_count; ++i) {
      out_groups[i] = face(world, world->members()[i].get());
    }
    return BP_OK;
  });
}

}  // namespace bp::cuda
