// Cases for the groups that split() and shrink() of api/include/backplane/collective.h make, for
// the timeouts of calls, and for calls on streams that capture.
#include <chrono>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCount = RankGroup::kCount;

// Groups that were made from those of a RankGroup; NULL for a rank that is in none. They end with
// this object.
class Derived {
 public:
  explicit Derived(RankGroup& from) : from_(from), groups_(from.size()) {}
  ~Derived() {
    const bp_process_group_ops& ops = from_.ops();
    for (bp_process_group* group : groups_) {
      if (group != nullptr) static_cast<void>(ops.abort(ops.self, group));
    }
    for (uint32_t rank = 0; rank < from_.size(); ++rank) static_cast<void>(from_.outcome(rank));
    for (bp_process_group* group : groups_) static_cast<void>(ops.destroy(ops.self, group));
  }
  Derived(const Derived&) = delete;

  bp_process_group* of(uint32_t old_rank) const { return groups_[old_rank]; }
  void set(uint32_t old_rank, bp_process_group* group) { groups_[old_rank] = group; }

 private:
  RankGroup& from_;
  std::vector<bp_process_group*> groups_;
};

// Gathers in the group whose ranks are these ranks of `g`, in this order, and compares.
void check_order(Context& t, RankGroup& g, const Derived& made, const std::vector<uint32_t>& ranks,
                 const std::string& what) {
  std::vector<bp_collective_call> calls;
  for (const uint32_t rank : ranks) {
    bp_collective_call call = g.call(rank, BP_COLLECTIVE_ALL_GATHER, BP_F32, kCount);
    call.group = made.of(rank);
    call.send = g.allocate(rank, kCount * 4);
    g.store(rank, call.send, BP_F32, placed);
    call.receive = g.allocate(rank, ranks.size() * kCount * 4);
    calls.push_back(call);
  }
  t.require_ok(g.submit(calls), what + ": submit");
  for (size_t i = 0; i < ranks.size(); ++i) {
    t.require_ok(g.outcome(ranks[i]), what + ": the stream of rank " + std::to_string(i));
    compare(
        t, g.load(ranks[i], calls[i].receive, BP_F32),
        [&](uint64_t e) { return placed(ranks[e / kCount], e % kCount); },
        what + ": rank " + std::to_string(i));
  }
}

// Checks what the group of a rank says of its place.
void check_place(Context& t, const RankGroup& g, bp_process_group* group, uint32_t want_rank,
                 uint32_t want_size, const std::string& what) {
  const bp_process_group_ops& ops = g.ops();
  uint32_t rank = UINT32_MAX, size = UINT32_MAX;
  t.require_ok(ops.rank(ops.self, group, &rank, &size), "rank of " + what);
  t.expect_eq(rank, want_rank, "out_rank of rank() of " + what);
  t.expect_eq(size, want_size, "out_world_size of rank() of " + what);
}

void ranks_tell_their_places(Context& t) {
  RankGroup g(t, 3);
  for (uint32_t rank = 0; rank < g.size(); ++rank) {
    check_place(t, g, g.group(rank), rank, g.size(), "the group of rank " + std::to_string(rank));
  }
  const bp_process_group_ops& ops = g.ops();
  uint32_t value = 77;
  t.expect_refused(ops.rank(ops.self, nullptr, &value, &value), BP_INVALID_ARGUMENT,
                   "rank: group is NULL");
  t.expect_refused(ops.rank(ops.self, g.group(0), nullptr, &value), BP_INVALID_ARGUMENT,
                   "rank: out_rank is NULL");
  t.expect_refused(ops.rank(ops.self, g.group(0), &value, nullptr), BP_INVALID_ARGUMENT,
                   "rank: out_world_size is NULL");
  t.expect_eq(value, 77u, "the number that a refused rank() was to give");
  t.require_ok(ops.abort(ops.self, g.group(1)), "abort");
  check_place(t, g, g.group(2), 2, g.size(), "a group that was aborted");
}

std::vector<bp_process_group*> groups_of(const RankGroup& g) {
  std::vector<bp_process_group*> groups;
  for (uint32_t rank = 0; rank < g.size(); ++rank) groups.push_back(g.group(rank));
  return groups;
}

// Ranks 0, 2 and 4 give one color, ranks 1 and 3 another, and rank 5 none. The keys turn the order
// of the first color around, and are equal in the second.
void split_goes_by_color_and_key(Context& t) {
  RankGroup g(t, 6);
  const uint32_t colors[] = {7, 0, 7, 0, 7, UINT32_MAX}, keys[] = {9, 4, 5, 4, 1, 0};
  const std::vector<bp_process_group*> groups = groups_of(g);
  std::vector<bp_process_group*> out(g.size(), t.sentinel<bp_process_group>());
  Derived made(g);
  const bp_process_group_ops& ops = g.ops();
  require_offered(
      t, ops.split(ops.self, g.size(), groups.data(), colors, keys, kTimeoutNs, out.data()),
      "split");
  for (uint32_t rank = 0; rank < g.size(); ++rank) made.set(rank, out[rank]);
  t.require(out[5] == nullptr, "the out group of a color of UINT32_MAX is NULL");
  for (uint32_t rank = 0; rank < 5; ++rank) {
    t.require(out[rank] != nullptr && out[rank] != t.sentinel<bp_process_group>(),
              "rank " + std::to_string(rank) + " gets a group");
  }
  check_order(t, g, made, {4, 2, 0}, "the color 7");
  check_order(t, g, made, {1, 3}, "the color 0");
  check_place(t, g, out[0], 2, 3, "rank 0 in the color 7");
  check_place(t, g, out[4], 0, 3, "rank 4 in the color 7");
  check_place(t, g, out[3], 1, 2, "rank 3 in the color 0");
  t.expect_eq(ops.status(ops.self, g.group(0)), BP_OK, "status of the group as it was");
}

// Some calls of split() that make no group.
void bad_splits_make_no_group(Context& t) {
  RankGroup g(t, 2);
  const uint32_t numbers[] = {0, 0};
  const std::vector<bp_process_group*> groups = groups_of(g);
  bp_process_group* const twice[] = {g.group(0), g.group(0)};
  std::vector<bp_process_group*> out(g.size(), t.sentinel<bp_process_group>());
  const bp_process_group_ops& ops = g.ops();
  const auto split = [&](bp_process_group* const* from, const uint32_t* colors,
                         const uint32_t* keys, const char* what) {
    const bp_status status =
        ops.split(ops.self, g.size(), from, colors, keys, kTimeoutNs, out.data());
    if (status == BP_UNSUPPORTED) t.not_supported(bp_error_text());
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
    t.expect(out[0] == t.sentinel<bp_process_group>() && out[1] == out[0],
             std::string(what) + ": out_groups are left alone");
  };
  split(nullptr, numbers, numbers, "split: groups is NULL");
  split(groups.data(), nullptr, numbers, "split: colors is NULL");
  split(groups.data(), numbers, nullptr, "split: keys is NULL");
  split(twice, numbers, numbers, "split: one group twice");
}

void shrunk_groups_keep_their_order(Context& t) {
  RankGroup g(t, 4);
  const std::vector<uint32_t> stay = {0, 2, 3};
  const std::vector<uint32_t> gone = {1};
  std::vector<bp_process_group*> groups, out(stay.size());
  for (const uint32_t rank : stay) groups.push_back(g.group(rank));
  Derived made(g);
  const bp_process_group_ops& ops = g.ops();
  require_offered(t,
                  ops.shrink(ops.self, static_cast<uint32_t>(stay.size()), groups.data(), 1,
                             gone.data(), kTimeoutNs, out.data()),
                  "shrink");
  for (size_t i = 0; i < stay.size(); ++i) made.set(stay[i], out[i]);
  check_order(t, g, made, stay, "the shrunk group");
  check_place(t, g, out[2], 2, 3, "the last rank of the shrunk group");
  t.expect_refused(ops.status(ops.self, g.group(0)), BP_ABORTED, "status of the group as it was");
}

// The timeout of the call is shorter than that of its group, or longer.
void timeout_of_a_call_replaces_that_of_the_group(Context& t) {
  const auto late = [&](uint64_t of_group, uint64_t of_call) {
    RankGroup g(t, 3, of_group);
    bp_collective_call call = g.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_F32, kCount, BP_REDUCTION_SUM);
    call.send = call.receive = g.allocate(0, kCount * 4);
    call.timeout_ns = of_call;
    g.finish_all();
    const auto start = std::chrono::steady_clock::now();
    t.require_ok(g.submit({call}), "submit of rank 0");
    const bp_status status = g.outcome(0);
    t.expect(status == BP_TIMEOUT || status == BP_ABORTED,
             std::string("the stream of the rank that waited has failed with ") +
                 bp_status_name(status));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double shorter = late(kTimeoutNs - 1'000'000'000, 100'000'000);
  t.expect(shorter < 5, "a call that gives 0.1 s in a group of 9 s ended after " +
                            std::to_string(shorter) + " s");
  const double longer = late(50'000'000, 600'000'000);
  t.expect(longer > 0.3, "a call that gives 0.6 s in a group of 0.05 s ended after " +
                             std::to_string(longer) + " s");
}

// A call that ran during the capture would be missing in each replay of the graph.
void captures_record_calls_or_refuse_them(Context& t) {
  graph_table(t);
  RankGroup g(t, 1);
  bp_collective_call call = g.call(0, BP_COLLECTIVE_ALL_GATHER, BP_F32, kCount);
  call.send = g.allocate(0, kCount * 4);
  call.receive = g.allocate(0, kCount * 4);
  g.store(0, call.send, BP_F32, placed);
  const std::vector<uint8_t> before = g.bytes(0, call.receive);

  Capturing capture(t, g.stream(0));
  const bp_status status = g.submit({call});
  if (status != BP_OK) t.expect_refused(status, BP_UNSUPPORTED, "submit on a stream that captures");
  const bp_capture_info info = capture.info();
  t.expect_eq(info.is_valid, 1u, "is_valid of the capture after submit");
  t.expect_eq(info.node_count > 0, status == BP_OK, "whether the capture has nodes of the call");
  const OwnedGraph graph = capture.end();
  t.expect(g.bytes(0, call.receive) == before, "the call does not write during the capture");
  if (status != BP_OK) return;
  const OwnedInstance instance = instantiate(t, graph);
  replay(t, instance, g.stream(0));
  compare(
      t, g.load(0, call.receive, BP_F32), [](uint64_t e) { return placed(0, e); },
      "what the replay gathered");
}

}  // namespace

void add_collective_group_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "collective",
      {
          {"ranks_tell_their_places", {"COLLECTIVE-19"}, ranks_tell_their_places},
          {"split_goes_by_color_and_key", {"COLLECTIVE-17"}, split_goes_by_color_and_key},
          {"bad_splits_make_no_group", {"ERROR-2", "ERROR-3"}, bad_splits_make_no_group},
          {"shrunk_groups_keep_their_order", {"COLLECTIVE-18"}, shrunk_groups_keep_their_order},
          {"timeout_of_a_call_replaces_that_of_the_group",
           {"COLLECTIVE-3"},
           timeout_of_a_call_replaces_that_of_the_group},
          {"captures_record_calls_or_refuse_them",
           {"GRAPH-1", "COLLECTIVE-1"},
           captures_record_calls_or_refuse_them},
      });
}

}  // namespace bp::conformance
