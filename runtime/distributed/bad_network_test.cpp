// Groups whose ranks are processes, over networks that are slow, narrow or broken: results are
// right, or every rank is told in time which rank and which call it was, and nothing is left.
//
// The store of a test is past the relay, so only the connections of the group are in the bad
// network. The ranks do not share memory, as those of several machines.
#include <gtest/gtest.h>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_network.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_relay.hpp"

namespace bp::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Floats = std::vector<float>;

constexpr Duration kTimeout = seconds(2);     // Of groups over a network that breaks.
constexpr int64_t kLarge = int64_t{1} << 20;  // Elements: 4 MiB in f32.

ProcessGroup make_group(Device device, uint32_t rank, uint32_t count,
                        const std::shared_ptr<Store>& store, Duration timeout,
                        const std::string& name = "world") {
  return ProcessGroup(device, rank, count, store,
                      {.name = name, .timeout = timeout, .options = {{"shared_memory", "0"}}});
}

// ---- Calls whose results are known -------------------------------------------------------------

Tensor filled(int64_t count, double value) { return full({count}, value, BP_F32); }

Floats floats(int64_t count, float value) { return Floats(static_cast<size_t>(count), value); }

// Returns `count` times each value.
Floats repeated(const Floats& values, int64_t count) {
  Floats all;
  for (const float value : values) all.insert(all.end(), static_cast<size_t>(count), value);
  return all;
}

void expect_filled(const Work& work, const Tensor& tensor, const Floats& want, const char* what) {
  work.wait();
  if (tensor.to_vector<float>() != want) throw std::logic_error(std::string(what) + " is wrong");
}

Floats values_of_ranks(uint32_t count, float first) {
  Floats values;
  for (uint32_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}

// The kinds that reduce or send to all. Rank r gives r + 1. Throws std::logic_error if a result is
// wrong.
void reduce_and_broadcast(const ProcessGroup& group, int64_t count) {
  const uint32_t n = group.size();
  const auto own = static_cast<float>(group.rank() + 1);
  const float sum = static_cast<float>(n * (n + 1)) / 2;
  const Tensor x = filled(count, own);
  expect_filled(group.all_reduce(x), x, floats(count, sum), "all_reduce");
  const Tensor at_root = filled(count, own);
  const bool is_root = group.rank() == n - 1;
  expect_filled(group.reduce(at_root, n - 1), at_root, floats(count, is_root ? sum : own),
                "reduce");
  const Tensor part = filled(count, 0), whole = filled(count * n, own);
  expect_filled(group.reduce_scatter(part, whole), part, floats(count, sum), "reduce_scatter");
  const Tensor sent = filled(count, own);
  expect_filled(group.broadcast(sent, 0), sent, floats(count, 1), "broadcast");
}

// The kinds that move parts.
void gather_and_scatter(const ProcessGroup& group, int64_t count) {
  const uint32_t n = group.size();
  const auto own = static_cast<float>(group.rank());
  const Floats in_order = repeated(values_of_ranks(n, 0), count);
  const Tensor part = filled(count, own), all = filled(count * n, -1);
  expect_filled(group.all_gather(all, part), all, in_order, "all_gather");
  const Tensor at_root = group.rank() == 0 ? filled(count * n, -1) : Tensor();
  const Work gathered = group.gather(at_root, part, 0);
  gathered.wait();
  if (at_root) expect_filled(gathered, at_root, in_order, "gather");
  const Tensor back = filled(count, -1);
  expect_filled(group.scatter(back, at_root, 0), back, floats(count, own), "scatter");
  const Tensor swapped = filled(count * n, -1), mine = filled(count * n, own);
  expect_filled(group.all_to_all(swapped, mine), swapped, in_order, "all_to_all");
}

// All ranks send to the next one and receive from the one before.
void send_around(const ProcessGroup& group, int64_t count) {
  const uint32_t n = group.size(), rank = group.rank(), before = (rank + n - 1) % n;
  const Tensor sent = filled(count, rank), got = filled(count, -1);
  const std::vector<Collective> calls{Collective::send_to(sent, (rank + 1) % n),
                                      Collective::receive_from(got, before)};
  expect_filled(group.submit(calls), got, floats(count, static_cast<float>(before)), "send");
  group.barrier();
}

void make_all_calls(const ProcessGroup& group, int64_t count) {
  reduce_and_broadcast(group, count);
  gather_and_scatter(group, count);
  send_around(group, count);
}

// ---- Networks that are slow --------------------------------------------------------------------

struct Case {
  const char* name;
  Network network;
  int64_t count = 0;  // Elements of a part.
  uint32_t ranks = 0;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name.
void PrintTo(const Case& row, std::ostream* out) { *out << row.name << " on " << row.ranks; }

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.name) + std::to_string(info.param.ranks);
}

std::vector<Case> for_2_and_4_ranks(const std::vector<Case>& rows) {
  std::vector<Case> cases;
  for (Case row : rows) {
    for (const uint32_t ranks : {2u, 4u}) {
      row.ranks = ranks;
      cases.push_back(row);
    }
  }
  return cases;
}

class SlowNetwork : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Networks, SlowNetwork,
    testing::ValuesIn(for_2_and_4_ranks({
        {"Delayed", {.delay = milliseconds(3)}, 1000},
        {"Jittery", {.delay = milliseconds(1), .jitter = milliseconds(10)}, 1000},
        {"Narrow", {.bytes_per_second = 8'000'000, .piece_bytes = 1500}, 20000},
        {"InSingleBytes", {.piece_bytes = 1}, 200},
        {"Bad",
         {.delay = milliseconds(1),
          .jitter = milliseconds(2),
          .bytes_per_second = 4'000'000,
          .piece_bytes = 700},
         5000},
    })),
    name_of);

TEST_P(SlowNetwork, GivesRightResults) {
  const Case& row = GetParam();
  const Relay relay(row.network);
  const bool has_groups =
      run_ranks_over(relay, row.ranks, [&](Device device, uint32_t rank, const auto& store) {
        const ProcessGroup group = make_group(device, rank, row.ranks, store, seconds(60));
        for (int i = 0; i < 3; ++i) make_all_calls(group, row.count);
      });
  if (!has_groups) GTEST_SKIP() << "the device has no process groups";
}

// ---- Networks that break -----------------------------------------------------------------------

// Returns what a failed rank was told. A wrong result fails the test.
Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  } catch (const std::logic_error& error) {
    ADD_FAILURE() << error.what();
  }
  return Error(BP_OK, "(nothing was thrown)");
}

// The text must have the call, the rank that was told, and behind them a rank: that at the other
// end of a connection, or an end of one between others.
void expect_sentence(const std::string& text, const ProcessGroup& group, const std::string& call) {
  const std::string own = " of rank " + std::to_string(group.rank()) + " of " +
                          std::to_string(group.size()) + " of the group 'world': ";
  const size_t at = text.find(own);
  ASSERT_NE(at, std::string::npos) << text;
  expect_part(text.substr(0, at), call);
  expect_part(text.substr(at + own.size()), "rank ");
}

void expect_lost(const Error& error) {
  EXPECT_TRUE(error.code() == BP_TIMEOUT || error.code() == BP_ABORTED) << error.what();
}

// The ranks can join again, under another name, if the network carries what this needs.
void expect_next_group(Device device, uint32_t rank, uint32_t count,
                       const std::shared_ptr<Store>& store) {
  const ProcessGroup group = make_group(device, rank, count, store, seconds(60), "next");
  make_all_calls(group, 10);
}

class BrokenNetwork : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Networks, BrokenNetwork,
    testing::ValuesIn(for_2_and_4_ranks({
        {"Stalled", {.cut = Cut::kStall, .cut_after_bytes = 1'000'001, .cut_between = {{0, 1}}}},
        {"Ended", {.cut = Cut::kEnd, .cut_after_bytes = 1'000'001, .cut_between = {{0, 1}}}},
        {"Reset", {.cut = Cut::kReset, .cut_after_bytes = 1'000'001, .cut_between = {{0, 1}}}},
        {"StalledForAll", {.cut = Cut::kStall, .cut_after_bytes = 1'000'001}},
        {"ResetForAll", {.cut = Cut::kReset, .cut_after_bytes = 1'000'001}},
        {"TooNarrow", {.bytes_per_second = 300'000}},
    })),
    name_of);

TEST_P(BrokenNetwork, EndsAnAllReduceOnEveryRank) {
  const Case& row = GetParam();
  const Relay relay(row.network);
  const bool has_groups =
      run_ranks_over(relay, row.ranks, [&](Device device, uint32_t rank, const auto& store) {
        {
          const ProcessGroup group = make_group(device, rank, row.ranks, store, kTimeout);
          // The network breaks in the first call, when each rank has its group.
          store->barrier("made", rank, row.ranks, kStoreLimit);
          const Tensor x = filled(kLarge, rank);
          const Error error = error_of([&] { group.all_reduce(x).wait(); });
          expect_lost(error);
          expect_sentence(error.what(), group, "all_reduce (submission 1)");
          EXPECT_NE(group.status(), BP_OK);
          const Error again = error_of([&] { group.all_reduce(filled(1, 1)).wait(); });
          if (again.code() != BP_STREAM_FAILED) expect_lost(again);
          expect_sentence(again.what(), group, "all_reduce (submission 2)");
        }
        store->barrier("failed", rank, row.ranks, seconds(60));
        expect_next_group(device, rank, row.ranks, store);
      });
  if (!has_groups) GTEST_SKIP() << "the device has no process groups";
  EXPECT_EQ(relay.cuts() != 0, row.network.cut != Cut::kNone);
}

class CutNetwork : public testing::TestWithParam<Case> {};

std::vector<Case> cuts_after(const std::vector<Cut>& cuts, const std::vector<uint64_t>& counts) {
  std::vector<Case> rows;
  for (const Cut cut : cuts) {
    const char* const name = cut == Cut::kStall ? "StalledAfter"
                             : cut == Cut::kEnd ? "EndedAfter"
                                                : "ResetAfter";
    for (const uint64_t bytes : counts) {
      rows.push_back({name, {.cut = cut, .cut_after_bytes = bytes, .cut_between = {{0, 1}}}});
    }
  }
  return for_2_and_4_ranks(rows);
}

std::string name_with_bytes(const testing::TestParamInfo<Case>& info) {
  return info.param.name + std::to_string(info.param.network.cut_after_bytes) + "Of" +
         std::to_string(info.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Networks, CutNetwork,
                         testing::ValuesIn(cuts_after({Cut::kStall, Cut::kEnd}, {0, 100})),
                         name_with_bytes);
// A transport may not survive a reset before it has accepted the connection.
INSTANTIATE_TEST_SUITE_P(Resets, CutNetwork, testing::ValuesIn(cuts_after({Cut::kReset}, {1000})),
                         name_with_bytes);

// A rank may have its group when the connection breaks, and is told by its first call then.
TEST_P(CutNetwork, IsToldToRanksThatJoin) {
  const Case& row = GetParam();
  const Relay relay(row.network);
  const bool has_groups =
      run_ranks_over(relay, row.ranks, [&](Device device, uint32_t rank, const auto& store) {
        const Error error = error_of([&] {
          const ProcessGroup group = make_group(device, rank, row.ranks, store, kTimeout);
          for (;;) make_all_calls(group, 10);
        });
        expect_lost(error);
        expect_part(error.what(), "group 'world'");
        expect_part(error.what(), "rank ");
      });
  if (!has_groups) GTEST_SKIP() << "the device has no process groups";
  EXPECT_GE(relay.cuts(), 1u);
}

class CutCalls : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Networks, CutCalls,
                         testing::ValuesIn(cuts_after({Cut::kStall, Cut::kEnd, Cut::kReset},
                                                      {10'000, 400'003})),
                         name_with_bytes);

// Wherever the cut is, a call ends with the right result or with an error.
TEST_P(CutCalls, GiveNoWrongResult) {
  const Case& row = GetParam();
  const Relay relay(row.network);
  const bool has_groups =
      run_ranks_over(relay, row.ranks, [&](Device device, uint32_t rank, const auto& store) {
        const ProcessGroup group = make_group(device, rank, row.ranks, store, kTimeout);
        store->barrier("made", rank, row.ranks, kStoreLimit);
        const Error error = error_of([&] {
          for (;;) make_all_calls(group, 3000);
        });
        expect_lost(error);
        expect_sentence(error.what(), group, "(submission ");
      });
  if (!has_groups) GTEST_SKIP() << "the device has no process groups";
  EXPECT_GE(relay.cuts(), 1u);
}

// ---- A store that is lost while ranks meet there -----------------------------------------------

TEST(LostStore, IsToldToRanksThatJoin) {
  for (const Cut cut : {Cut::kStall, Cut::kEnd, Cut::kReset}) {
    const Relay relay({.cut = cut, .cut_after_bytes = 100});  // The addresses do not fit.
    const ReservedPort port{"127.0.0.1"};
    const auto codes = run_processes(2, [&](uint32_t rank) {
      alarm(kHangSeconds);
      const std::optional<Device> device = load_device();
      if (!device) return kHasNoGroups;
      relay.join(rank);
      const auto store =
          std::make_shared<TcpStore>("127.0.0.1", port.number(), rank == 0, 2, seconds(5));
      const Error error = error_of([&] { make_group(*device, rank, 2, store, kTimeout); });
      EXPECT_NE(error.code(), BP_OK);
      expect_part(error.what(), "process_group.create: group 'world': ");
      expect_part(error.what(), "(the store: TcpStore: ");
      expect_part(error.what(), " 'world/");
      return testing::Test::HasFailure() ? 1 : 0;
    });
    if (codes[0] == kHasNoGroups) GTEST_SKIP() << "the device has no process groups";
    EXPECT_EQ(codes, (std::vector<int>{0, 0}));
    EXPECT_GE(relay.cuts(), 1u) << "rank 0 may take the store with it before rank 1 is cut off";
  }
}

}  // namespace
}  // namespace bp::distributed
