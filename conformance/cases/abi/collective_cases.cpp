// Cases for api/include/backplane/collective.h. Values are small integers, so that a reduction
// gives the same result in any order, which follows from rank and index.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCount = 37;  // The count is no power of two, and no multiple of a vector.

double value(uint32_t rank, uint64_t i) {
  return static_cast<double>((i * 5 + uint64_t{rank} * 3) % 4 + 1);
}

double reduce(bp_reduction reduction, double a, double b) {
  switch (reduction) {
    case BP_REDUCTION_PRODUCT:
      return a * b;
    case BP_REDUCTION_MIN:
      return std::min(a, b);
    case BP_REDUCTION_MAX:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// Returns element i of the reduction over `size` ranks. Only the first four ranks change a product.
double reduced(bp_reduction reduction, uint32_t size, uint64_t i, const ValueOf& given) {
  double result = given(0, i);
  for (uint32_t rank = 1; rank < size; ++rank) result = reduce(reduction, result, given(rank, i));
  return reduction == BP_REDUCTION_AVERAGE ? result / size : result;
}

struct Numbers {
  bp_dtype dtype;
  bp_reduction reduction;
};

// Runs one all_reduce at odd offsets, in place or not, and compares on every rank.
void check_all_reduce(Context& t, RankGroup& g, Numbers n, bool in_place) {
  const uint64_t item = element_size(n.dtype), size_bytes = kCount * item, offset = 3 * item;
  // A product over many ranks stays small, because most ranks give 1.
  const ValueOf given = [n](uint32_t rank, uint64_t i) {
    return n.reduction == BP_REDUCTION_PRODUCT && rank > 2 ? 1 : value(rank, i);
  };
  std::vector<bp_collective_call> calls;
  std::vector<bp_buffer_ref> results;
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    bp_buffer_ref from = g.allocate(rank, size_bytes + offset);
    bp_buffer_ref to = in_place ? from : g.allocate(rank, size_bytes + offset);
    for (bp_buffer_ref* ref : {&from, &to}) *ref = {ref->buffer, offset, size_bytes};
    g.store(rank, from, n.dtype, given);
    bp_collective_call call = g.call(rank, BP_COLLECTIVE_ALL_REDUCE, n.dtype, kCount, n.reduction);
    call.send = from;
    call.receive = to;
    call.scale = n.reduction == BP_REDUCTION_SCALED_SUM ? 1.0 : 0.0;
    calls.push_back(call);
    results.push_back(to);
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    compare(
        t, g.load(rank, results[rank], n.dtype),
        [&](uint64_t i) {
          const double exact = reduced(n.reduction, g.size(), i, given);
          return is_float(n.dtype) ? round_to(n.dtype, DoubleDouble(exact)) : exact;
        },
        "rank " + std::to_string(rank) + " of " + std::to_string(g.size()));
  }
}

// Returns the combinations that the device's dtypes and the group allow.
std::vector<Numbers> claimed_numbers(Context& t, const RankGroup& g) {
  std::vector<Numbers> claimed;
  const bp_device_properties& p = *t.target().properties;
  for (uint64_t d = 0; d < p.dtype_count; ++d) {
    for (bp_reduction r = BP_REDUCTION_SUM; r <= BP_REDUCTION_SCALED_SUM; ++r) {
      if (float_format(p.dtypes[d]) == nullptr && p.dtypes[d] != BP_I32 && p.dtypes[d] != BP_I64 &&
          p.dtypes[d] != BP_U8 && p.dtypes[d] != BP_I8) {
        continue;
      }
      const bp_status status =
          g.ops().supports(g.ops().self, g.group(0), BP_COLLECTIVE_ALL_REDUCE, r, p.dtypes[d]);
      if (status == BP_OK) claimed.push_back({p.dtypes[d], r});
      if (status != BP_OK) t.expect_refused(status, BP_UNSUPPORTED, "supports");
    }
  }
  if (claimed.empty()) t.missing("all_reduce is not supported for any dtype of the device");
  return claimed;
}

void check_all_reduces(Context& t, uint32_t size) {
  RankGroup g(t, size);
  for (const Numbers n : claimed_numbers(t, g)) {
    // If the number of ranks is not a power of two, an average is not exact.
    if (n.reduction == BP_REDUCTION_AVERAGE && (size & (size - 1)) != 0) continue;
    check_all_reduce(t, g, n, false);
    check_all_reduce(t, g, n, true);
  }
}

template <uint32_t kSize>
void all_reduce_is_exact(Context& t) {
  check_all_reduces(t, kSize);
}

// The data are random bits: their sum depends on the order, which must be the same for all ranks.
void all_reduce_gives_every_rank_the_same_bits(Context& t) {
  RankGroup g(t, 2);
  constexpr uint64_t kMany = 1000;
  std::vector<bp_collective_call> calls;
  std::vector<bp_buffer_ref> results;
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    const bp_buffer_ref all = g.allocate(rank, kMany * 4);
    const std::vector<uint8_t> noise = random_bytes(t, kMany, rank + 1);
    g.store(rank, all, BP_F32, [&](uint32_t, uint64_t i) {
      return (noise[i] - 127.5) * std::ldexp(1.0, static_cast<int>(i % 50) - 25);
    });
    bp_collective_call call =
        g.call(rank, BP_COLLECTIVE_ALL_REDUCE, BP_F32, kMany, BP_REDUCTION_SUM);
    call.send = call.receive = all;
    calls.push_back(call);
    results.push_back(all);
  }
  t.require_ok(g.submit(calls), "submit");
  g.finish_all();
  for (uint32_t rank = 1; rank < g.size(); ++rank) {
    t.expect(g.bytes(rank, results[rank]) == g.bytes(0, results[0]),
             "rank " + std::to_string(rank) + " has the bits of rank 0");
  }
}

// ---- Moving elements ----------------------------------------------------------------------------

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

void broadcast_and_reduce_have_a_root(Context& t) {
  RankGroup g(t, 2);
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

// Checks even parts, uneven parts, and an empty part.
void check_parts(Context& t, RankGroup& g, const std::vector<uint64_t>& counts) {
  const uint64_t all = before(counts, counts.size());
  const auto make = [&](bp_collective_kind kind, bp_reduction reduction) {
    return [&g, &counts, kind, reduction](uint32_t r) {
      bp_collective_call call = g.call(r, kind, BP_F32, 0, reduction, 1 % g.size());
      call.counts = counts.data();
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

void parts_go_where_they_belong(Context& t) {
  RankGroup g(t, 2);
  check_parts(t, g, std::vector<uint64_t>(g.size(), kCount));
  std::vector<uint64_t> uneven;
  for (uint32_t rank = 0; rank < g.size(); ++rank) uneven.push_back(rank * 11);
  check_parts(t, g, uneven);
}

void all_to_all_exchanges_every_pair(Context& t) {
  RankGroup g(t, 2);
  // Rank r sends 2r + c + 1 elements to rank c.
  const auto count = [](uint32_t from, uint32_t to) { return uint64_t{2} * from + to + 1; };
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
        call.counts = sends[r].data();
        call.receive_counts = receives[r].data();
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
        "all_to_all: " + of(rank));
  }
}

// Each rank sends to the next rank and receives from the previous one. Without grouping, every send
// would wait.
void sends_and_receives_of_one_group_of_calls_pair_up(Context& t) {
  RankGroup g(t, 2);
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

void add_collective_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "collective",
      {
          {"all_reduce_is_exact_on_1_rank", {"COLLECTIVE-5"}, all_reduce_is_exact<1>},
          {"all_reduce_is_exact_on_2_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<2>},
          {"all_reduce_is_exact_on_3_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<3>},
          {"all_reduce_is_exact_on_5_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<5>},
          {"all_reduce_is_exact_on_8_ranks", {"COLLECTIVE-5"}, all_reduce_is_exact<8>},
          {"all_reduce_gives_every_rank_the_same_bits",
           {"COLLECTIVE-9"},
           all_reduce_gives_every_rank_the_same_bits},
          {"broadcast_and_reduce_have_a_root", {"COLLECTIVE-1"}, broadcast_and_reduce_have_a_root},
          {"parts_go_where_they_belong", {"COLLECTIVE-1"}, parts_go_where_they_belong},
          {"all_to_all_exchanges_every_pair", {"COLLECTIVE-1"}, all_to_all_exchanges_every_pair},
          {"sends_and_receives_of_one_group_of_calls_pair_up",
           {"COLLECTIVE-1"},
           sends_and_receives_of_one_group_of_calls_pair_up},
          {"letters_arrive_in_the_order_of_their_submission",
           {"COLLECTIVE-13"},
           letters_arrive_in_the_order_of_their_submission},
      });
}

}  // namespace bp::conformance
