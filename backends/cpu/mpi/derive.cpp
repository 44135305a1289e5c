// Splits and shrinks groups. The ranks of a part meet anew, under keys of their own in the store of
// the group that they come from.
#include <algorithm>
#include <cstring>
#include <string>

#include "backends/cpu/groups/sides.hpp"
#include "backends/cpu/mpi/exchange.hpp"
#include "backends/cpu/mpi/groups.hpp"
#include "backplane/shell/deadline.hpp"

namespace bp::mpi {
namespace {

using cpu::Side;

// Tells all ranks what this one gives to split().
class Sides final : public Activity {
 public:
  Sides(Channel& channel, const Side& own, uint64_t child, std::vector<Side>& out_sides)
      : channel_(channel),
        exchange_(channel, tag_of(Topic::kSplit, child), sizeof(Side)),
        sides_(out_sides) {
    sides_.assign(channel.size, own);
    for (uint32_t peer = 0; peer < channel.size; ++peer) {
      if (peer == channel.rank) continue;
      Block message(sizeof(own));
      std::memcpy(message.data(), &own, sizeof(own));
      exchange_.send(peer, std::move(message), sizeof(own));
    }
  }

  bool poll(bool /*is_its_turn*/) override {
    if (!exchange_.poll()) return false;
    for (uint32_t peer = 0; peer < channel_.size; ++peer) {
      if (peer == channel_.rank) continue;
      std::memcpy(&sides_[peer], exchange_.from(peer), sizeof(Side));
    }
    return true;
  }
  bool awaits(uint32_t rank) const override { return exchange_.awaits(rank); }

 private:
  Channel& channel_;
  Exchange exchange_;
  std::vector<Side>& sides_;
};

// Returns what all ranks give, by rank. Throws StatusError, and ends the group, if a rank does not
// come in time.
std::vector<Side> exchange_sides(World& world, const Side& own, uint64_t child,
                                 uint64_t timeout_ns) {
  if (world.size() == 1) return {own};
  std::vector<Side> sides;
  const auto call = std::make_shared<Running>();
  call->name = "split";
  call->rank = world.rank();
  call->timeout_ns = timeout_ns;
  call->make = [&](Channel& channel) -> std::unique_ptr<Activity> {
    return std::make_unique<Sides>(channel, own, child, sides);
  };
  world.number(*call);
  world.arrive(call, {});
  call->done->wait(UINT64_MAX);
  const Outcome& outcome = call->done->outcome();
  if (outcome.status != BP_OK) refuse(outcome.status, outcome.text);
  return sides;
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
    check_not_ended(world.status(), "split: ");
    const Deadline deadline(Entries::timeout_of(world, timeout_ns));
    const uint64_t child = world.next_child();
    const auto sides = exchange_sides(world, {colors[0], keys[0]}, child, deadline.left_ns());
    const uint32_t color = sides[world.rank()].color;
    bp_process_group* made = nullptr;
    if (color != UINT32_MAX) {
      const std::vector<uint32_t> ranks = cpu::ranks_of_color(sides, color);
      WorldPlan plan = world.plan();
      plan.prefix += "split/" + std::to_string(child) + "/" + std::to_string(color) + "/";
      plan.size = static_cast<uint32_t>(ranks.size());
      plan.rank = static_cast<uint32_t>(std::ranges::find(ranks, world.rank()) - ranks.begin());
      made = g.make(plan, deadline.left_ns(), "split");
    }
    out_groups[0] = made;
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
    check_presence(ranks_of(groups), {world.rank()}, gone, "shrink");
    WorldPlan plan = world.plan();
    plan.prefix += "shrink/" + std::to_string(world.next_child()) + "/";
    plan.size -= static_cast<uint32_t>(gone.size());
    plan.rank = rank_without(gone, world.rank());
    bp_process_group* const made = g.make(plan, Entries::timeout_of(world, timeout_ns), "shrink");
    world.end({BP_ABORTED, "the group was shrunk"});
    out_groups[0] = made;
    return BP_OK;
  });
}

}  // namespace bp::mpi
