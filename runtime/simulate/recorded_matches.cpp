#include "runtime/simulate/recorded_matches.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "backplane/runtime/error.hpp"

namespace bp::simulate {
namespace {

// An event with the rank that recorded it.
struct Seen {
  const RecordedRank* rank;
  const RecordedEvent* event;

  const RecordedGroup& group() const { return rank->groups[event->group]; }
  std::string place() const { return rank->name + ":" + std::to_string(event->line); }
  // Returns text like "rank 1 sends 4096 bytes to rank 0".
  std::string text() const {
    const std::string bytes = std::to_string(static_cast<uint64_t>(event->bytes)) + " bytes";
    const std::string who = "rank " + std::to_string(rank->rank);
    const std::string peer = " rank " + std::to_string(event->peer);
    if (event->kind == RecordedEvent::Kind::kSend) return who + " sends " + bytes + " to" + peer;
    if (event->kind == RecordedEvent::Kind::kReceive) {
      return who + " receives " + bytes + " from" + peer;
    }
    return who + " calls " + call_name(event->call) + " of " + bytes + " with root" + peer;
  }
};

std::string name_of(const RecordedGroup& group) {
  std::string text = "the group '" + group.name + "' of ranks ";
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(group.ranks[i]);
  }
  return text;
}

[[noreturn]] void refuse(const Seen& seen, const std::string& why) {
  throw Error(BP_INVALID_ARGUMENT,
              seen.place() + ": " + seen.text() + " in " + name_of(seen.group()) + ", " + why);
}

// The events of a group or of a pair of its ranks, by rank. Both sides of a send have one list.
struct Key {
  std::string name;
  std::vector<uint32_t> ranks;
  uint32_t source = kNone, target = kNone;  // Of sends and receives.
  auto operator<=>(const Key&) const = default;
};
using Lists = std::map<Key, std::map<uint32_t, std::vector<Seen>>>;

Key key_of(const Seen& seen) {
  const RecordedEvent& event = *seen.event;
  Key key{.name = seen.group().name, .ranks = seen.group().ranks};
  if (event.kind == RecordedEvent::Kind::kCall) return key;
  const bool sends = event.kind == RecordedEvent::Kind::kSend;
  key.source = sends ? seen.rank->rank : event.peer;
  key.target = sends ? event.peer : seen.rank->rank;
  return key;
}

Lists lists_of(const std::vector<RecordedRank>& ranks, size_t first) {
  Lists lists;
  for (const RecordedRank& rank : ranks) {
    for (size_t step = first; step < rank.steps.size(); ++step) {
      for (const RecordedEvent& event : rank.steps[step].events) {
        using enum RecordedEvent::Kind;
        if (event.kind == kCompute || event.kind == kWait) continue;
        const Seen seen{&rank, &event};
        lists[key_of(seen)][rank.rank].push_back(seen);
      }
    }
  }
  return lists;
}

bool is_same_call(const RecordedEvent& a, const RecordedEvent& b) {
  return a.call == b.call && a.bytes == b.bytes && (a.call == CallKind::kSend || a.peer == b.peer);
}

// Compares what two ranks did, in order.
void check_pair(const std::vector<Seen>& some, uint32_t other, const std::vector<Seen>& others) {
  for (size_t i = 0; i < std::min(some.size(), others.size()); ++i) {
    if (is_same_call(*some[i].event, *others[i].event)) continue;
    refuse(some[i], "and " + others[i].text() + " (" + others[i].place() + "); they must agree");
  }
  if (some.size() <= others.size()) return;
  const Seen& seen = some[others.size()];
  const char* side = " such calls";
  if (seen.event->kind == RecordedEvent::Kind::kSend) side = " receives from it";
  if (seen.event->kind == RecordedEvent::Kind::kReceive) side = " sends to it";
  refuse(seen, "and nothing matches it: this is number " + std::to_string(others.size() + 1) +
                   ", and rank " + std::to_string(other) + " has " + std::to_string(others.size()) +
                   side);
}

}  // namespace

void check_matches(const std::vector<RecordedRank>& ranks, size_t first) {
  for (const auto& [key, by_rank] : lists_of(ranks, first)) {
    const bool is_pair = key.source != kNone;
    const std::vector<uint32_t> sides = is_pair ? std::vector{key.source, key.target} : key.ranks;
    const auto list_of = [&by_rank = by_rank](uint32_t rank) {
      const auto place = by_rank.find(rank);
      return place == by_rank.end() ? std::vector<Seen>{} : place->second;
    };
    const std::vector<Seen> ours = list_of(sides[0]);
    for (size_t i = 1; i < sides.size(); ++i) {
      const std::vector<Seen> others = list_of(sides[i]);
      check_pair(ours, sides[i], others);
      check_pair(others, sides[0], ours);
    }
  }
}

}  // namespace bp::simulate
