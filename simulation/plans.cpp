#include "simulation/plans.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "simulation/network.hpp"

namespace bp::simulate {
namespace {

constexpr std::array kNames{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                            "reduce",     "gather",     "scatter",        "barrier",    "send"};

// Sets of members that do the same at the same time. All have the same size.
using Sets = std::vector<std::vector<uint32_t>>;
using Rounds = std::vector<Round>;

void append(Rounds& to, Rounds more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// `round_count` rounds in which each member sends `bytes` to the next one.
Rounds ring(const Sets& sets, double bytes, uint32_t round_count) {
  if (sets[0].size() < 2) return {};
  Round round{.repeat = round_count};
  for (const auto& set : sets) {
    for (size_t i = 0; i < set.size(); ++i) {
      round.messages.push_back({set[i], set[(i + 1) % set.size()], bytes});
    }
  }
  return {round};
}

// A round in which each member exchanges `bytes` with the one at `distance`.
Round exchange(const Sets& sets, size_t distance, double bytes) {
  Round round;
  for (const auto& set : sets) {
    for (size_t i = 0; i < set.size(); ++i) {
      round.messages.push_back({set[i], set[i ^ distance], bytes});
    }
  }
  return round;
}

Rounds halving(const Sets& sets, double bytes) {
  Rounds rounds;
  for (size_t distance = sets[0].size() / 2; distance > 0; distance /= 2) {
    bytes /= 2;
    rounds.push_back(exchange(sets, distance, bytes));
  }
  return rounds;
}

Rounds doubling(const Sets& sets, double bytes) {
  Rounds rounds = halving(sets, bytes);
  std::ranges::reverse(rounds);
  return rounds;
}

// A binomial tree. Member `root` has the value first.
Rounds broadcast_tree(const Sets& sets, uint32_t root, double bytes) {
  Rounds rounds;
  const size_t n = sets[0].size();
  for (size_t have = 1; have < n; have *= 2) {
    Round round;
    for (const auto& set : sets) {
      for (size_t i = 0; i < have && i + have < n; ++i) {
        round.messages.push_back({set[(i + root) % n], set[(i + have + root) % n], bytes});
      }
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

Rounds reduce_tree(const Sets& sets, uint32_t root, double bytes) {
  Rounds rounds = broadcast_tree(sets, root, bytes);
  std::ranges::reverse(rounds);
  for (Round& round : rounds) {
    for (Message& message : round.messages) std::swap(message.source, message.target);
  }
  return rounds;
}

Rounds both_trees(const Sets& sets, double bytes) {
  Rounds rounds = reduce_tree(sets, 0, bytes);
  append(rounds, broadcast_tree(sets, 0, bytes));
  return rounds;
}

Rounds pairwise(const Sets& sets, double bytes) {
  Rounds rounds;
  const size_t n = sets[0].size();
  for (size_t distance = 1; distance < n; ++distance) {
    Round round;
    for (size_t i = 0; i < n; ++i) {
      round.messages.push_back(
          {sets[0][i], sets[0][(i + distance) % n], bytes / static_cast<double>(n)});
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

Rounds direct(uint32_t n, uint32_t root, bool is_to_root, double bytes) {
  Round round;
  for (uint32_t i = 0; i < n; ++i) {
    if (i == root) continue;
    round.messages.push_back({is_to_root ? i : root, is_to_root ? root : i, bytes / n});
  }
  return {round};
}

// The plans of the kinds that have several, for sets of members without regard to nodes.
std::vector<Plan> flat_plans(CallKind kind, const Sets& sets, double bytes) {
  const auto n = static_cast<uint32_t>(sets[0].size());
  const bool is_all_reduce = kind == CallKind::kAllReduce;
  std::vector<Plan> plans;
  plans.push_back({"ring", ring(sets, bytes / n, (is_all_reduce ? 2 : 1) * (n - 1))});
  if (std::has_single_bit(n)) {
    Rounds rounds;
    if (kind != CallKind::kAllGather) append(rounds, halving(sets, bytes));
    if (kind != CallKind::kReduceScatter) append(rounds, doubling(sets, bytes));
    plans.push_back({"halving_doubling", std::move(rounds)});
  }
  if (is_all_reduce) plans.push_back({"tree", both_trees(sets, bytes)});
  return plans;
}

const char* hierarchical_name(std::string_view flat) {
  if (flat == "ring") return "hierarchical_ring";
  return flat == "tree" ? "hierarchical_tree" : "hierarchical_halving_doubling";
}

// Members by node, and by their place in the node. Empty if the nodes do not have the same number
// of members, or one member each.
struct Hierarchy {
  Sets inner, outer;
};

Hierarchy hierarchy_of(const std::vector<uint32_t>& nodes) {
  Hierarchy found;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (i == 0 || nodes[i] != nodes[i - 1]) found.inner.emplace_back();
    found.inner.back().push_back(i);
  }
  const size_t width = found.inner[0].size();
  const bool is_even =
      std::ranges::all_of(found.inner, [&](const auto& set) { return set.size() == width; });
  if (!is_even || width == 1 || found.inner.size() == 1) return {};
  found.outer.resize(width);
  for (const auto& set : found.inner) {
    for (size_t i = 0; i < width; ++i) found.outer[i].push_back(set[i]);
  }
  return found;
}

std::vector<Plan> hierarchical_plans(CallKind kind, const Hierarchy& of, double bytes) {
  std::vector<Plan> plans;
  const auto width = static_cast<uint32_t>(of.inner[0].size());
  const double part = bytes / width;
  for (Plan& between : flat_plans(kind, of.outer, part)) {
    Plan plan{hierarchical_name(between.algorithm), {}};
    if (kind != CallKind::kAllGather) append(plan.rounds, ring(of.inner, part, width - 1));
    append(plan.rounds, std::move(between.rounds));
    if (kind != CallKind::kReduceScatter) append(plan.rounds, ring(of.inner, part, width - 1));
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace

const char* call_name(CallKind kind) { return kNames.at(static_cast<size_t>(kind)); }

CallKind call_kind(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<CallKind>(i);
  }
  std::string allowed;
  for (const char* each : kNames) {
    if (!allowed.empty()) allowed += ", ";
    allowed += each;
  }
  throw NetworkError("", "the kind of a call is '" + std::string(name) + "'; allowed: " + allowed);
}

std::vector<Plan> make_plans(const Call& call, const std::vector<uint32_t>& nodes) {
  const auto n = static_cast<uint32_t>(nodes.size());
  if (n < 2) return {{"none", {}}};
  Sets all(1, std::vector<uint32_t>(n));
  std::iota(all[0].begin(), all[0].end(), 0U);
  switch (call.kind) {
    case CallKind::kAllToAll:
      return {{"pairwise", pairwise(all, call.bytes)}};
    case CallKind::kBroadcast:
      return {{"tree", broadcast_tree(all, call.source, call.bytes)}};
    case CallKind::kReduce:
      return {{"tree", reduce_tree(all, call.source, call.bytes)}};
    case CallKind::kGather:
      return {{"direct", direct(n, call.source, true, call.bytes)}};
    case CallKind::kScatter:
      return {{"direct", direct(n, call.source, false, call.bytes)}};
    case CallKind::kBarrier:
      return {{"tree", both_trees(all, 0)}};
    case CallKind::kSend:
      return {{"direct", {{{{call.source, call.target, call.bytes}}, 1}}}};
    default:
      break;
  }
  std::vector<Plan> plans = flat_plans(call.kind, all, call.bytes);
  const Hierarchy hierarchy = hierarchy_of(nodes);
  if (hierarchy.inner.empty()) return plans;
  for (Plan& plan : hierarchical_plans(call.kind, hierarchy, call.bytes)) {
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace bp::simulate
