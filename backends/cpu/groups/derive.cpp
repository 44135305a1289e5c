// Splits and shrinks groups. The ranks of a part meet anew, under keys of their own in the store of
// the group that they come from.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <tuple>

#include "backends/cpu/groups/collectives.hpp"
#include "backends/cpu/groups/exchange.hpp"
#include "backends/cpu/groups/groups.hpp"
#include "backends/cpu/groups/sides.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cpu {
namespace {

// Returns the plan of a part, which has no ranks yet.
WorldPlan plan_of_part(const World& from, const std::string& keys) {
  WorldPlan plan = from.plan();
  plan.devices.clear();
  plan.ranks.clear();
  plan.size = 0;
  plan.prefix += keys;
  return plan;
}

// Tells all ranks what the rank of `mesh` gives, and returns what all give, by rank.
std::vector<Side> exchange_side(gloo::Context& mesh, const Side& own, uint64_t child) {
  const auto size = static_cast<size_t>(mesh.size);
  std::vector<std::byte> bytes(size * sizeof(Side));
  for (size_t rank = 0; rank < size; ++rank) {
    std::memcpy(bytes.data() + rank * sizeof(Side), &own, sizeof(Side));
  }
  const auto others = exchange(mesh, slot_of(Topic::kSplit, child), bytes, sizeof(Side));
  std::vector<Side> sides(size);
  std::memcpy(sides.data(), others.data(), others.size());
  sides[static_cast<size_t>(mesh.rank)] = own;
  return sides;
}

// Lets each local rank exchange what it gives with all ranks, and returns what all give. `given`
// has an entry for each of `groups`. Throws StatusError, and ends the group, if a rank does not
// come in time.
std::vector<Side> exchange_sides(World& world, const std::vector<Group*>& groups,
                                 const std::vector<Side>& given, uint64_t child,
                                 uint64_t timeout_ns) {
  std::vector<Side> sides;  // As the first local rank sees them.
  std::vector<std::shared_ptr<Running>> calls;
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& call = calls.emplace_back(std::make_shared<Running>());
    call->kind = BP_COLLECTIVE_BARRIER;
    call->name = "split";
    call->rank = rank_of(*groups[i]);
    call->member = groups[i]->member;
    call->timeout_ns = timeout_ns;
    call->body = [&, i, child](gloo::Context& mesh) {
      auto seen = exchange_side(mesh, given[i], child);
      if (i == 0) sides = std::move(seen);
    };
    call->member->count_submitted(1);
    world.arrive(call, {});
  }
  for (const auto& call : calls) call->done->wait(UINT64_MAX);
  for (const auto& call : calls) {
    const Outcome& outcome = call->done->outcome();
    if (outcome.status != BP_OK) refuse(outcome.status, outcome.text);
  }
  return sides;
}

// A part that local ranks are in.
struct Part {
  WorldPlan plan;
  std::vector<size_t> places;  // In `groups` and `out_groups`, in the order of plan.ranks.
  std::shared_ptr<World> world;
};

// Connects the ranks of all parts. Makes none if one fails.
void make_parts(Groups& g, std::vector<Part>& parts, uint64_t timeout_ns, const char* call) {
  const Deadline deadline(timeout_ns);
  const Outcome made = outcome_of([&] {
    for (Part& part : parts) part.world = g.start(part.plan, call);
    for (Part& part : parts) part.world->wait_until_made(deadline, timeout_ns, call);
  });
  if (made.status == BP_OK) return;
  for (const Part& part : parts) {
    if (part.world == nullptr) continue;
    part.world->end(made);
    static_cast<void>(outcome_of([&] { part.world->wait_until_made(deadline, timeout_ns, call); }));
  }
  refuse(made.status, made.text);
}

void write_groups(const std::vector<Part>& parts, bp_process_group** out_groups) {
  for (const Part& part : parts) {
    for (size_t i = 0; i < part.places.size(); ++i) {
      out_groups[part.places[i]] = face(part.world, *part.world->members()[i]);
    }
  }
}

// Returns the parts that the local ranks are in.
std::vector<Part> parts_of(const World& world, const std::vector<Group*>& groups,
                           const std::vector<Side>& sides, uint64_t child) {
  std::map<uint32_t, Part> parts;
  for (size_t i = 0; i < groups.size(); ++i) {
    const uint32_t rank = rank_of(*groups[i]), color = sides[rank].color;
    if (color == UINT32_MAX) continue;
    const std::vector<uint32_t> ranks = ranks_of_color(sides, color);
    const auto [place, is_new] = parts.try_emplace(color);
    Part& part = place->second;
    if (is_new) {
      part.plan =
          plan_of_part(world, "split/" + std::to_string(child) + "/" + std::to_string(color) + "/");
      part.plan.size = static_cast<uint32_t>(ranks.size());
    }
    part.plan.ranks.push_back(
        static_cast<uint32_t>(std::ranges::find(ranks, rank) - ranks.begin()));
    part.plan.devices.push_back(groups[i]->member->device());
    part.places.push_back(i);
  }
  std::vector<Part> list;
  list.reserve(parts.size());
  for (auto& [color, part] : parts) list.push_back(std::move(part));
  return list;
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status split_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                       const uint32_t* colors, const uint32_t* keys, uint64_t timeout_ns,
                       bp_process_group** out_groups) {
  return Entries::entry(self, [&](Groups& g) -> bp_status {
    const auto groups = read_groups<Group>(local_count, handles, "split");
    require(colors, "split: colors");
    require(keys, "split: keys");
    require(out_groups, "split: out_groups");
    World& world = *groups[0]->world;
    check_presence(ranks_of(groups), world.plan().ranks, {}, "split");
    check_not_ended(world.status(), "split: ");
    const Deadline deadline(Entries::timeout_of(world, timeout_ns));
    const uint64_t child = world.next_child();
    std::vector<Side> given;
    for (uint32_t i = 0; i < local_count; ++i) given.push_back({colors[i], keys[i]});
    const auto sides = exchange_sides(world, groups, given, child, deadline.left_ns());
    std::vector<Part> parts = parts_of(world, groups, sides, child);
    make_parts(g, parts, deadline.left_ns(), "split");
    std::fill_n(out_groups, local_count, nullptr);
    write_groups(parts, out_groups);
    return BP_OK;
  });
}

// NOLINTNEXTLINE(readability-function-size): the table has these arguments.
bp_status shrink_groups(void* self, uint32_t local_count, bp_process_group* const* handles,
                        uint32_t gone_count, const uint32_t* gone_ranks, uint64_t timeout_ns,
                        bp_process_group** out_groups) {
  return Entries::entry(self, [&](Groups& g) -> bp_status {
    const auto groups = read_groups<Group>(local_count, handles, "shrink");
    require(out_groups, "shrink: out_groups");
    World& world = *groups[0]->world;
    const std::vector<uint32_t> gone = read_gone_ranks(gone_count, gone_ranks, world.size());
    check_presence(ranks_of(groups), world.plan().ranks, gone, "shrink");
    std::vector<Part> parts(1);
    Part& part = parts[0];
    part.plan = plan_of_part(world, "shrink/" + std::to_string(world.next_child()) + "/");
    part.plan.size = world.size() - static_cast<uint32_t>(gone.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      part.plan.ranks.push_back(rank_without(gone, rank_of(*groups[i])));
      part.plan.devices.push_back(groups[i]->member->device());
      part.places.push_back(i);
    }
    make_parts(g, parts, Entries::timeout_of(world, timeout_ns), "shrink");
    write_groups(parts, out_groups);
    world.end({BP_ABORTED, "the group was shrunk"});
    return BP_OK;
  });
}

}  // namespace bp::cpu
