#include "registry/layers/worlds.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "backplane/host.h"

namespace bp::layers {
namespace {

bool is_peer(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_SEND || kind == BP_COLLECTIVE_RECEIVE;
}

// Returns the sum of `counts`, or `parts` times `count` if there are no counts.
uint64_t elements_of(uint64_t count, const uint64_t* counts, uint32_t parts) {
  return counts == nullptr ? count * parts : std::accumulate(counts, counts + parts, uint64_t{0});
}

// Returns how many elements a call sends, as the table in collective.h says.
uint64_t sent_elements(const bp_collective_call& call, uint32_t parts) {
  switch (call.kind) {
    case BP_COLLECTIVE_REDUCE_SCATTER:
    case BP_COLLECTIVE_ALL_TO_ALL:
    case BP_COLLECTIVE_SCATTER:
      return elements_of(call.count, call.counts, parts);
    default:
      return call.count;
  }
}

uint64_t received_elements(const bp_collective_call& call, uint32_t parts) {
  switch (call.kind) {
    case BP_COLLECTIVE_ALL_GATHER:
    case BP_COLLECTIVE_GATHER:
      return elements_of(call.count, call.counts, parts);
    case BP_COLLECTIVE_ALL_TO_ALL:
      return elements_of(call.count,
                         call.receive_counts == nullptr ? call.counts : call.receive_counts, parts);
    default:
      return call.count;
  }
}

}  // namespace

void Worlds::create(const bp_process_group_desc& desc, bp_process_group* const* groups) {
  const auto world = std::make_shared<World>();
  world->local_count = desc.local_count;
  for (uint32_t i = 0; i < desc.local_count; ++i) {
    members_[groups[i]] = {world, desc.ranks[i], desc.world_size};
  }
}

// Ranks are ordered by key, then by the rank that they had.
void Worlds::split(uint32_t count, bp_process_group* const* from, const uint32_t* colors,
                   const uint32_t* keys, bp_process_group* const* groups) {
  struct Part {
    uint32_t key, rank;
    bp_process_group* group;
  };
  std::map<uint32_t, std::vector<Part>> colored;
  bool knows_all = true;
  for (uint32_t i = 0; i < count; ++i) {
    const auto old = members_.find(from[i]);
    const uint32_t rank = old == members_.end() ? kUnknown : old->second.rank;
    knows_all = knows_all && rank != kUnknown && old->second.world_size == count;
    if (groups[i] != nullptr) colored[colors[i]].push_back({keys[i], rank, groups[i]});
  }
  for (auto& [color, parts] : colored) {
    std::ranges::sort(parts, {}, [](const Part& part) { return std::pair(part.key, part.rank); });
    const auto world = std::make_shared<World>();
    world->local_count = static_cast<uint32_t>(parts.size());
    for (uint32_t rank = 0; rank < parts.size(); ++rank) {
      members_[parts[rank].group] = {world, knows_all ? rank : kUnknown,
                                     knows_all ? world->local_count : kUnknown};
    }
  }
}

// The ranks that stay keep their order.
void Worlds::shrink(uint32_t count, bp_process_group* const* from, uint32_t gone_count,
                    const uint32_t* gone_ranks, bp_process_group* const* groups) {
  const std::set<uint32_t> gone(gone_ranks, gone_ranks + gone_count);
  const auto world = std::make_shared<World>();
  world->local_count = count;
  for (uint32_t i = 0; i < count; ++i) {
    Member made{world, kUnknown, kUnknown};
    const auto old = members_.find(from[i]);
    if (old != members_.end() && old->second.rank != kUnknown) {
      const auto in_front = std::distance(gone.begin(), gone.lower_bound(old->second.rank));
      made.rank = old->second.rank - static_cast<uint32_t>(in_front);
      made.world_size = old->second.world_size - static_cast<uint32_t>(gone.size());
    }
    members_[groups[i]] = made;
  }
}

// If a rank is not known, the call has both sides for which it gave memory.
Worlds::Sides Worlds::sides_of(const bp_collective_call& call, const Member& member) {
  const bool is_root = member.rank == kUnknown || member.rank == call.root;
  switch (call.kind) {
    case BP_COLLECTIVE_REDUCE:
    case BP_COLLECTIVE_GATHER:
      return {true, is_root};
    case BP_COLLECTIVE_BROADCAST:
    case BP_COLLECTIVE_SCATTER:
      return {is_root, true};
    case BP_COLLECTIVE_SEND:
      return {true, false};
    case BP_COLLECTIVE_RECEIVE:
      return {false, true};
    default:
      return {true, true};
  }
}

std::vector<Access> Worlds::accesses(const bp_collective_call& call) const {
  const auto found = members_.find(call.group);
  if (found == members_.end() || call.kind == BP_COLLECTIVE_BARRIER) return {};
  const Member& member = found->second;
  const Sides sides = sides_of(call, member);
  std::vector<Access> accesses;
  // The range that counts is the smaller of what was given and what the call needs.
  const auto add = [&](bp_buffer_ref range, uint64_t elements, bool writes) {
    const uint64_t bits = bp_dtype_bits(call.dtype);
    if (member.world_size != kUnknown && bits >= 8) {
      range.size_bytes = std::min(range.size_bytes, elements * (bits / 8));
    }
    if (range.buffer != nullptr) accesses.push_back({footprint_of(range), writes});
  };
  const uint32_t parts = member.world_size == kUnknown ? 1 : member.world_size;
  if (sides.sends) add(call.send, sent_elements(call, parts), false);
  if (sides.receives) add(call.receive, received_elements(call, parts), true);
  return accesses;
}

namespace {

bp_event* event_of(char& mark) { return reinterpret_cast<bp_event*>(&mark); }

void forget(std::list<char>& marks, Hazards& hazards) {
  for (char& mark : marks) hazards.remove_event(event_of(mark));
}

}  // namespace

bool Worlds::join(Round& round, const bp_collective_call& call, Sides sides,
                  std::list<char>& before, uint32_t most, Hazards& hazards) {
  if (sides.receives) {
    for (char& mark : round.marks) hazards.wait_event(call.stream, event_of(mark));
    round.receivers.push_back(call.stream);
  }
  if (sides.sends) {
    for (bp_stream* each : round.receivers) hazards.wait_event(each, event_of(before.front()));
    round.marks.splice(round.marks.end(), before);
  }
  if (++round.call_count < most) return false;
  forget(round.marks, hazards);
  return true;
}

// The nth send from one rank to another matches the nth receive there.
void Worlds::order_letter(World& world, const Member& member, const bp_collective_call& call,
                          std::list<char>& before, Hazards& hazards) {
  if (member.rank == kUnknown) return;
  const bool sends = call.kind == BP_COLLECTIVE_SEND;
  const uint32_t from = sends ? member.rank : call.root, to = sends ? call.root : member.rank;
  const uint64_t number = world.letter_counts[{from, to}][sends ? 0 : 1]++;
  const Letter letter{from, to, number};
  if (join(world.letters[letter], call, {sends, !sends}, before, 2, hazards)) {
    world.letters.erase(letter);
  }
}

void Worlds::order(const bp_collective_call& call, std::list<char> before, Hazards& hazards) {
  if (const auto found = members_.find(call.group); found != members_.end()) {
    Member& member = found->second;
    World& world = *member.world;
    if (is_peer(call.kind)) {
      order_letter(world, member, call, before, hazards);
    } else {
      const uint64_t number = member.round_count++;
      const Sides sides = sides_of(call, member);
      if (join(world.rounds[number], call, sides, before, world.local_count, hazards)) {
        world.rounds.erase(number);
      }
    }
  }
  forget(before, hazards);  // If nobody took it over.
}

}  // namespace bp::layers
