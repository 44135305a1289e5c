// Cases for the collectives of api/include/backplane/collective.h that move elements. Each element
// shows the rank that it is from, and its place there.
#include <numeric>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCount = RankGroup::kCount;

// One call of each rank that sends `sent` and receives `received` elements.
struct Moved {
  std::vector<bp_buffer_ref> results;
};

using Counts = std::function<uint64_t(uint32_t rank)>;

Moved move(Context& t, RankGroup& g, const std::function<bp_collective_call(uint32_t)>& make,
           const Counts& sent, const Counts& received) {
  Moved moved;
  std::vector<bp_collective_call> calls;
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    bp_collective_call call = make(rank);
    if (sent(rank) != 0) {
      call.send = g.allocate(rank, sent(rank) * 4);
      g.store(rank, call.send, BP_F32, placed);
    }
    if (received(rank) != 0) call.receive = g.allocate(rank, received(rank) * 4);
    moved.results.push_back(call.receive);
    calls.push_back(call);
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  return moved;
}

uint64_t before(const std::vector<uint64_t>& counts, uint64_t part) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(part), uint64_t{0});
}

// Returns the part that element i is in, and its place within the part.
std::pair<uint32_t, uint64_t> find_part(const std::vector<uint64_t>& counts, uint64_t i) {
  uint32_t part = 0;
  while (i >= counts[part]) i -= counts[part++];
  return {part, i};
}

std::string of(uint32_t rank) { return "rank " + std::to_string(rank); }

template <uint32_t kSize>
void broadcast_and_reduce_have_a_root(Context& t) {
  RankGroup g(t, kSize);
  for (uint32_t root = 0; root < g.size(); ++root) {
    const Moved sent = move(
        t, g,
        [&](uint32_t r) { return g.call(r, BP_COLLECTIVE_BROADCAST, BP_F32, kCount, 0, root); },
        [&](uint32_t r) { return r == root ? kCount : 0; }, [](uint32_t) { return kCount; });
    for (uint32_t rank = 0; rank < g.size(); ++rank) {
      compare(
          t, g.load(rank, sent.results[rank], BP_F32), [&](uint64_t i) { return placed(root, i); },
          "broadcast: " + of(rank));
    }
    const Moved summed = move(
        t, g,
        [&](uint32_t r) {
          return g.call(r, BP_COLLECTIVE_REDUCE, BP_F32, kCount, BP_REDUCTION_SUM, root);
        },
        [](uint32_t) { return kCount; }, [&](uint32_t r) { return r == root ? kCount : 0; });
    compare(
        t, g.load(root, summed.results[root], BP_F32),
        [&](uint64_t i) { return reduced(BP_REDUCTION_SUM, g.size(), i, placed); },
        "reduce: root " + std::to_string(root));
  }
}

// How the calls say the sizes of parts.
enum class Form { kOneCount, kManyCounts };

// Checks parts of these sizes, which are equal where the form is kOneCount.
void check_parts(Context& t, RankGroup& g, const std::vector<uint64_t>& counts, Form form) {
  const uint64_t all = before(counts, counts.size());
  const auto make = [&](bp_collective_kind kind, bp_reduction reduction) {
    return [&g, &counts, form, kind, reduction](uint32_t r) {
      bp_collective_call call = g.call(r, kind, BP_F32, 0, reduction, 1 % g.size());
      if (form == Form::kOneCount) {
        call.count = counts.front();
      } else {
        call.counts = counts.data();
      }
      return call;
    };
  };
  const Counts own = [&](uint32_t r) { return counts[r]; }, every = [&](uint32_t) { return all; },
               at_root = [&](uint32_t r) { return r == 1 % g.size() ? all : 0; };
  const auto from_part = [&](uint64_t i) {
    const auto [part, place] = find_part(counts, i);
    return placed(part, place);
  };
  const Moved gathered = move(t, g, make(BP_COLLECTIVE_ALL_GATHER, 0), own, every);
  const Moved at_one = move(t, g, make(BP_COLLECTIVE_GATHER, 0), own, at_root);
  const Moved summed = move(t, g, make(BP_COLLECTIVE_REDUCE_SCATTER, BP_REDUCTION_SUM), every, own);
  const Moved scattered = move(t, g, make(BP_COLLECTIVE_SCATTER, 0), at_root, own);
  compare(t, g.load(1 % g.size(), at_one.results[1 % g.size()], BP_F32), from_part, "gather");
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    compare(t, g.load(rank, gathered.results[rank], BP_F32), from_part, "all_gather: " + of(rank));
    if (counts[rank] == 0) continue;
    const uint64_t first = before(counts, rank);
    compare(
        t, g.load(rank, summed.results[rank], BP_F32),
        [&](uint64_t i) { return reduced(BP_REDUCTION_SUM, g.size(), first + i, placed); },
        "reduce_scatter: " + of(rank));
    compare(
        t, g.load(rank, scattered.results[rank], BP_F32),
        [&](uint64_t i) { return placed(1 % g.size(), first + i); }, "scatter: " + of(rank));
  }
}

// Checks even parts in both forms, uneven parts, and an empty part.
template <uint32_t kSize>
void parts_go_where_they_belong(Context& t) {
  RankGroup g(t, kSize);
  const std::vector<uint64_t> even(g.size(), kCount);
  check_parts(t, g, even, Form::kOneCount);
  check_parts(t, g, even, Form::kManyCounts);
  std::vector<uint64_t> uneven;
  for (uint32_t rank = 0; rank < g.size(); ++rank) uneven.push_back(rank * 11);
  check_parts(t, g, uneven, Form::kManyCounts);
}

// The number of elements that one rank sends to another.
using Exchange = std::function<uint64_t(uint32_t from, uint32_t to)>;

// Lets prepare(call, sends, receives) say the sizes.
void check_exchange(
    Context& t, RankGroup& g, const Exchange& count, const std::string& what,
    const std::function<void(bp_collective_call& call, const std::vector<uint64_t>& sends,
                             const std::vector<uint64_t>& receives)>& prepare) {
  std::vector<std::vector<uint64_t>> sends(g.size()), receives(g.size());
  for (uint32_t a = 0; a < g.size(); ++a) {
    for (uint32_t b = 0; b < g.size(); ++b) {
      sends[a].push_back(count(a, b));
      receives[a].push_back(count(b, a));
    }
  }
  const Moved moved = move(
      t, g,
      [&](uint32_t r) {
        bp_collective_call call = g.call(r, BP_COLLECTIVE_ALL_TO_ALL, BP_F32, 0);
        prepare(call, sends[r], receives[r]);
        return call;
      },
      [&](uint32_t r) { return before(sends[r], g.size()); },
      [&](uint32_t r) { return before(receives[r], g.size()); });
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    compare(
        t, g.load(rank, moved.results[rank], BP_F32),
        [&](uint64_t i) {
          const auto [from, place] = find_part(receives[rank], i);
          return placed(from, before(sends[from], rank) + place);
        },
        "all_to_all with " + what + ": " + of(rank));
  }
}

template <uint32_t kSize>
void all_to_all_exchanges_every_pair(Context& t) {
  RankGroup g(t, kSize);
  check_exchange(
      t, g, [](uint32_t from, uint32_t to) { return uint64_t{2} * from + to + 1; }, "both counts",
      [](auto& call, const auto& sends, const auto& receives) {
        call.counts = sends.data();
        call.receive_counts = receives.data();
      });
  check_exchange(
      t, g, [](uint32_t from, uint32_t to) { return uint64_t{3} * (from + to) + 1; },
      "counts alone",
      [](auto& call, const auto& sends, const auto&) { call.counts = sends.data(); });
  check_exchange(
      t, g, [](uint32_t, uint32_t) { return kCount; }, "one count",
      [](auto& call, const auto&, const auto&) { call.count = kCount; });
}

// Each rank sends to the next rank and receives from the previous one. Without grouping, every send
// would wait.
template <uint32_t kSize>
void sends_and_receives_of_one_group_of_calls_pair_up(Context& t) {
  RankGroup g(t, kSize);
  const uint32_t n = g.size();
  std::vector<bp_collective_call> calls;
  std::vector<bp_buffer_ref> results;
  for (uint32_t rank = 0; rank < n; ++rank) {
    bp_collective_call send = g.call(rank, BP_COLLECTIVE_SEND, BP_F32, kCount, 0, (rank + 1) % n);
    bp_collective_call receive =
        g.call(rank, BP_COLLECTIVE_RECEIVE, BP_F32, kCount, 0, (rank + n - 1) % n);
    send.send = g.allocate(rank, kCount * 4);
    g.store(rank, send.send, BP_F32, placed);
    receive.receive = g.allocate(rank, kCount * 4);
    results.push_back(receive.receive);
    calls.insert(calls.end(), {send, receive});
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  for (uint32_t rank = 0; rank < n; ++rank) {
    compare(
        t, g.load(rank, results[rank], BP_F32),
        [&](uint64_t i) { return placed((rank + n - 1) % n, i); }, of(rank));
  }
}

// Rank 0 sends three letters to rank 1: two in one group of calls, and one behind them. The
// receives are grouped in another way.
void letters_arrive_in_the_order_of_their_submission(Context& t) {
  RankGroup g(t, 2);
  constexpr uint32_t kLetters = 3;
  std::vector<bp_collective_call> sends, receives;
  for (uint32_t letter = 0; letter < kLetters; ++letter) {
    bp_collective_call& send =
        sends.emplace_back(g.call(0, BP_COLLECTIVE_SEND, BP_F32, kCount, 0, 1));
    send.send = g.allocate(0, kCount * 4);
    g.store(0, send.send, BP_F32, [&](uint32_t, uint64_t i) { return placed(letter, i); });
    receives.push_back(g.call(1, BP_COLLECTIVE_RECEIVE, BP_F32, kCount, 0, 0));
    receives.back().receive = g.allocate(1, kCount * 4);
  }
  t.require_ok(g.submit({sends[0], sends[1], receives[0]}), "submit of two sends and a receive");
  t.require_ok(g.submit({receives[1], receives[2], sends[2]}), "submit of the others");
  g.finish_all();
  for (uint32_t letter = 0; letter < kLetters; ++letter) {
    compare(
        t, g.load(1, receives[letter].receive, BP_F32),
        [&](uint64_t i) { return placed(letter, i); }, "receive " + std::to_string(letter));
  }
}

}  // namespace

void add_collective_move_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "collective",
      {
          {"broadcast_and_reduce_have_a_root",
           {"COLLECTIVE-1"},
           broadcast_and_reduce_have_a_root<2>},
          {"broadcast_and_reduce_have_a_root_on_3_ranks",
           {"COLLECTIVE-1"},
           broadcast_and_reduce_have_a_root<3>},
          {"broadcast_and_reduce_have_a_root_on_8_ranks",
           {"COLLECTIVE-1"},
           broadcast_and_reduce_have_a_root<8>},
          {"parts_go_where_they_belong", {"COLLECTIVE-1"}, parts_go_where_they_belong<2>},
          {"parts_go_where_they_belong_on_3_ranks",
           {"COLLECTIVE-1"},
           parts_go_where_they_belong<3>},
          {"parts_go_where_they_belong_on_5_ranks",
           {"COLLECTIVE-1"},
           parts_go_where_they_belong<5>},
          {"parts_go_where_they_belong_on_8_ranks",
           {"COLLECTIVE-1"},
           parts_go_where_they_belong<8>},
          {"all_to_all_exchanges_every_pair", {"COLLECTIVE-1"}, all_to_all_exchanges_every_pair<2>},
          {"all_to_all_exchanges_every_pair_of_3_ranks",
           {"COLLECTIVE-1"},
           all_to_all_exchanges_every_pair<3>},
          {"all_to_all_exchanges_every_pair_of_8_ranks",
           {"COLLECTIVE-1"},
           all_to_all_exchanges_every_pair<8>},
          {"sends_and_receives_of_one_group_of_calls_pair_up",
           {"COLLECTIVE-1"},
           sends_and_receives_of_one_group_of_calls_pair_up<2>},
          {"sends_and_receives_of_5_ranks_pair_up",
           {"COLLECTIVE-1"},
           sends_and_receives_of_one_group_of_calls_pair_up<5>},
          {"letters_arrive_in_the_order_of_their_submission",
           {"COLLECTIVE-13"},
           letters_arrive_in_the_order_of_their_submission},
      });
}

}  // namespace bp::conformance
