// Groups whose ranks share this process, and groups of two instances of the backend, which stand
// for two processes.
#include "backends/cpu/groups/groups_test.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/groups/store.hpp"

namespace bp::cpu {
namespace {

using Floats = std::vector<float>;

// Creates rank 0 of two in `a` and rank 1 in `b`.
void meet(Ranks& a, Ranks& b, const LocalStore& store) {
  bp_status other = BP_INTERNAL;
  std::thread thread([&] { other = b.create({1}, 2, store.table()); });
  EXPECT_EQ(a.create({0}, 2, store.table()), BP_OK) << a.text();
  thread.join();
  ASSERT_EQ(other, BP_OK) << b.text();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- Making groups ------------------------------------------------------------------------------

TEST(Groups, SumUpOverTwoInstances) {
  const LocalStore store;
  Ranks a, b;
  meet(a, b, store);
  a.set(0, {1, 2, 3, 4});
  b.set(0, {10, 20, 30, 40});
  ASSERT_EQ(a.submit({a.sum(0)}), BP_OK) << a.text();
  ASSERT_EQ(b.submit({b.sum(0)}), BP_OK) << b.text();
  EXPECT_EQ(a.outcome(0), BP_OK) << a.text();
  EXPECT_EQ(b.outcome(0), BP_OK) << b.text();
  EXPECT_EQ(a.get(0, 4), (Floats{11, 22, 33, 44}));
  EXPECT_EQ(b.get(0, 4), a.get(0, 4));
}

TEST(Groups, NameTheRankThatDoesNotComeToCreate) {
  const LocalStore store;
  Ranks r;
  EXPECT_EQ(r.create({0, 1}, 3, store.table(), kShort), BP_TIMEOUT);
  EXPECT_EQ(r.text(), "create: rank 2 did not come within 1000 ms");
}

TEST(Groups, NeedAStoreUnlessAllRanksAreLocal) {
  Ranks r;
  EXPECT_EQ(r.create({0}, 2, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(r.text(), "store is NULL")) << r.text();
  EXPECT_EQ(r.create({0, 1}, 2, nullptr), BP_OK) << r.text();
}

TEST(Groups, ListenWhereTheOptionsSay) {
  Ranks r;
  EXPECT_EQ(r.create({0, 1}, 2, nullptr, kLong, {{"interface", "lo"}}), BP_OK) << r.text();
  EXPECT_EQ(r.create({0, 1}, 2, nullptr, kLong, {{"hostname", "127.0.0.1"}}), BP_OK) << r.text();
}

TEST(Groups, SayWhatIsWrongWithAnOption) {
  Ranks r;
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"interface", "none0"}}), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(r.text(), "\"none0\" is no interface with an address; there are ") &&
              contains(r.text(), "lo"))
      << r.text();
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"hostname", "no.such.host.invalid"}}),
            BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(r.text(), "\"no.such.host.invalid\" has no address")) << r.text();
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"hostname", "192.0.2.1"}}), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(r.text(), "\"192.0.2.1\" has no address at which this host can listen"))
      << r.text();
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"hostname", ""}}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"hostname", "a"}, {"interface", "lo"}}),
            BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(r.text(), "only one of them is allowed")) << r.text();
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"port", "1"}}), BP_NOT_FOUND);
}

// ---- Calls --------------------------------------------------------------------------------------

TEST(Groups, LetSubmitReturnBeforeTheOthersHaveCome) {
  Ranks r;
  ASSERT_EQ(r.create({0, 1}, 2, nullptr), BP_OK) << r.text();
  r.set(0, {1});
  r.set(1, {2});
  bp_collective_call first = r.sum(0);
  first.stream = r.backend().default_stream();  // It runs work in the calling thread.
  ASSERT_EQ(r.submit({first}), BP_OK) << r.text();
  ASSERT_EQ(r.submit({r.sum(1)}), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(1), BP_OK) << r.text();
  const auto& streams = *r.backend().streams;
  EXPECT_EQ(streams.synchronize(streams.self, first.stream, kLong), BP_OK) << r.text();
  EXPECT_EQ(r.values(0)[0], 3);
}

// The ranks submit in one order, and their streams come to the calls in another.
TEST(Groups, DoNotMixCallsThatRunAtTheSameTime) {
  Ranks r;
  ASSERT_EQ(r.create({0, 1}, 2, nullptr), BP_OK) << r.text();
  const auto& events = *r.backend().events;
  const auto& streams = *r.backend().streams;
  bp_event* const gate = r.backend().make_event(BP_EVENT_HOST_SIGNAL);
  bp_stream* const held = r.backend().make_stream();
  ASSERT_EQ(streams.wait_event(streams.self, held, gate), BP_OK) << r.text();
  r.set(0, {1, 0, 0, 0, 5});
  r.set(1, {2, 0, 0, 0, 6});
  bp_collective_call late = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, 1);
  late.stream = held;
  bp_collective_call early = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_MAX, 1);
  early.send.byte_offset = early.receive.byte_offset = 16;
  early.send.size_bytes = early.receive.size_bytes = 4;
  bp_collective_call first = r.call(1, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, 1);
  first.stream = r.backend().make_stream();
  bp_collective_call second = early;
  second.group = r.group(1);
  second.stream = r.sum(1).stream;
  second.send.buffer = second.receive.buffer = r.sum(1).send.buffer;
  ASSERT_EQ(r.submit({late, early, first, second}), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(0), BP_OK) << r.text();
  EXPECT_EQ(r.values(0)[4], 6);
  EXPECT_EQ(r.values(0)[0], 1) << "the first call has run before its stream reached it";
  ASSERT_EQ(events.signal(events.self, gate, BP_OK), BP_OK) << r.text();
  EXPECT_EQ(streams.synchronize(streams.self, held, kLong), BP_OK) << r.text();
  EXPECT_EQ(streams.synchronize(streams.self, first.stream, kLong), BP_OK) << r.text();
  EXPECT_EQ(r.values(0)[0], 3);
  events.destroy(events.self, gate);
}

TEST(Groups, ExchangePartsInPlace) {
  constexpr uint32_t kSize = 3;
  Ranks r;
  ASSERT_EQ(r.create({0, 1, 2}, kSize, nullptr), BP_OK) << r.text();
  const uint64_t counts[kSize][kSize] = {{1, 2, 0}, {2, 1, 3}, {0, 3, 2}};
  std::vector<bp_collective_call> calls;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    calls.push_back(r.call(rank, BP_COLLECTIVE_ALL_TO_ALL));
    calls.back().counts = counts[rank];  // The matrix is symmetric.
    for (uint32_t i = 0; i < 6; ++i) r.values(rank)[i] = static_cast<float>(10 * rank + i);
  }
  ASSERT_EQ(r.submit(calls), BP_OK) << r.text();
  for (uint32_t rank = 0; rank < kSize; ++rank) EXPECT_EQ(r.outcome(rank), BP_OK) << r.text();
  EXPECT_EQ(r.get(0, 3), (Floats{0, 10, 11}));
  EXPECT_EQ(r.get(1, 6), (Floats{1, 2, 12, 20, 21, 22}));
  EXPECT_EQ(r.get(2, 5), (Floats{13, 14, 15, 23, 24}));
}

TEST(Groups, AverageEqualElementsToThemselves) {
  constexpr uint32_t kSize = 3;
  Ranks r;
  ASSERT_EQ(r.create({0, 1, 2}, kSize, nullptr), BP_OK) << r.text();
  std::vector<bp_collective_call> calls;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    r.set(rank, {7, 3, 1.25f, -11});
    calls.push_back(r.call(rank, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_AVERAGE));
  }
  ASSERT_EQ(r.submit(calls), BP_OK) << r.text();
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(r.outcome(rank), BP_OK) << r.text();
    EXPECT_EQ(r.get(rank, 4), (Floats{7, 3, 1.25f, -11}));
  }
}

TEST(Groups, DeliverALetterOfARankToItself) {
  Ranks r;
  ASSERT_EQ(r.create({0}, 1, nullptr), BP_OK) << r.text();
  r.set(0, {1, 2, 3, 4});
  ASSERT_EQ(r.submit({r.letter(0, BP_COLLECTIVE_SEND, 0), r.letter(0, BP_COLLECTIVE_RECEIVE, 0)}),
            BP_OK)
      << r.text();
  EXPECT_EQ(r.outcome(0), BP_OK) << r.text();
  EXPECT_EQ(r.values(0)[35], 4);
}

TEST(Groups, MoveMoreThanASocketHolds) {
  constexpr uint64_t kElements = 3'000'000;
  Ranks r;
  ASSERT_EQ(r.create({0, 1}, 2, nullptr), BP_OK) << r.text();
  std::vector<bp_collective_call> calls;
  std::vector<float*> values;
  for (size_t rank = 0; rank < 2; ++rank) {
    bp_buffer* const buffer = r.backend().make_buffer(kElements * 4);
    uint64_t address = 0;
    r.backend().allocator->address(r.backend().allocator->self, buffer, &address);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
    values.push_back(reinterpret_cast<float*>(address));
    std::iota(values[rank], values[rank] + kElements, static_cast<float>(rank));
    calls.push_back(r.call(rank, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_MAX, kElements));
    calls[rank].send = calls[rank].receive = {buffer, 0, kElements * 4};
  }
  ASSERT_EQ(r.submit(calls), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(0), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(1), BP_OK) << r.text();
  for (const uint64_t i : {uint64_t{0}, kElements / 2, kElements - 1}) {
    EXPECT_EQ(values[0][i], static_cast<float>(i + 1));
    EXPECT_EQ(values[1][i], static_cast<float>(i + 1));
  }
}

// ---- Groups that end ----------------------------------------------------------------------------

// Gloo would end the process, because the longer message has no room.
TEST(Groups, SayWhichRanksGiveOtherCounts) {
  const LocalStore store;
  Ranks a, b;
  meet(a, b, store);
  ASSERT_EQ(a.submit({a.call(0, BP_COLLECTIVE_BROADCAST, 0, 4)}), BP_OK) << a.text();
  ASSERT_EQ(b.submit({b.call(0, BP_COLLECTIVE_BROADCAST, 0, 2)}), BP_OK) << b.text();
  EXPECT_EQ(a.outcome(0), BP_INVALID_ARGUMENT);
  EXPECT_EQ(b.outcome(0), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(a.text(), "gives other counts, such as")) << a.text();
}

TEST(Groups, SayWhatALetterHas) {
  const LocalStore store;
  Ranks a, b;
  meet(a, b, store);
  bp_collective_call send = a.letter(0, BP_COLLECTIVE_SEND, 1);
  send.count = 9;
  ASSERT_EQ(a.submit({send}), BP_OK) << a.text();
  ASSERT_EQ(b.submit({b.letter(0, BP_COLLECTIVE_RECEIVE, 0)}), BP_OK) << b.text();
  EXPECT_EQ(b.outcome(0), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(b.text(), "rank 0 sends 9 elements")) << b.text();
  EXPECT_EQ(a.outcome(0), BP_INVALID_ARGUMENT) << a.text();
}

TEST(Groups, EndInAllInstancesWhenOneAborts) {
  const LocalStore store;
  Ranks a, b;
  meet(a, b, store);
  ASSERT_EQ(a.submit({a.sum(0)}), BP_OK) << a.text();
  EXPECT_EQ(b.ops().abort(b.ops().self, b.group(0)), BP_OK);
  EXPECT_EQ(a.outcome(0), BP_ABORTED);
  EXPECT_EQ(a.status(0), BP_ABORTED);
  EXPECT_EQ(a.text(), "rank 1 aborted the group");
  EXPECT_EQ(a.submit({a.sum(0)}), BP_ABORTED);
}

TEST(Groups, LeaveThePeersOfADestroyedGroupInPeace) {
  const LocalStore store;
  Ranks b;
  {
    Ranks a;
    meet(a, b, store);
    a.set(0, {5});
    ASSERT_EQ(a.submit({a.letter(0, BP_COLLECTIVE_SEND, 1)}), BP_OK) << a.text();
    ASSERT_EQ(b.submit({b.letter(0, BP_COLLECTIVE_RECEIVE, 0)}), BP_OK) << b.text();
    a.destroy_last();
  }
  EXPECT_EQ(b.outcome(0), BP_OK) << b.text();
  EXPECT_EQ(b.values(0)[32], 5);
  EXPECT_EQ(b.status(0), BP_OK) << b.text();
}

TEST(Groups, TellThatARankHasLeft) {
  const LocalStore store;
  Ranks b;
  {
    Ranks a;
    meet(a, b, store);
  }
  ASSERT_EQ(b.submit({b.sum(0)}), BP_OK) << b.text();
  EXPECT_EQ(b.outcome(0), BP_ABORTED);
  EXPECT_TRUE(contains(b.text(), "the connection to rank 0 is closed") ||
              contains(b.text(), "rank 0 has destroyed its group"))
      << b.text();
  EXPECT_EQ(b.status(0), BP_ABORTED);
}

TEST(Groups, ShrinkAfterATimeout) {
  Ranks r;
  ASSERT_EQ(r.create({0, 1, 2}, 3, nullptr, kShort), BP_OK) << r.text();
  ASSERT_EQ(r.submit({r.sum(0), r.sum(2)}), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(0), BP_TIMEOUT);
  EXPECT_TRUE(contains(r.text(), "waited 1000 ms for rank 1")) << r.text();
  EXPECT_EQ(r.outcome(2), BP_TIMEOUT);
  bp_process_group* const from[] = {r.group(0), r.group(2)};
  bp_process_group* made[2] = {};
  const uint32_t gone = 1;
  ASSERT_EQ(r.ops().shrink(r.ops().self, 2, from, 1, &gone, kLong, made), BP_OK) << r.text();
  r.add({made[0], made[1]});
  r.set(3, {1});
  r.set(4, {2});
  ASSERT_EQ(r.submit({r.sum(3), r.sum(4)}), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(3), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(4), BP_OK) << r.text();
  EXPECT_EQ(r.values(3)[0], 3);
}

TEST(Groups, SayWhoDoesNotComeToSplit) {
  const LocalStore store;
  Ranks a, b;
  meet(a, b, store);
  bp_process_group* const from = a.group(0);
  bp_process_group* made = nullptr;
  const uint32_t color = 0, key = 0;
  EXPECT_EQ(a.ops().split(a.ops().self, 1, &from, &color, &key, kShort, &made), BP_TIMEOUT);
  EXPECT_TRUE(contains(a.text(), "split: rank 0 waited") && contains(a.text(), "for rank 1"))
      << a.text();
  EXPECT_EQ(made, nullptr);
}

TEST(Groups, EndACallWhosePeerIsDestroyed) {
  Ranks r;
  ASSERT_EQ(r.create({0, 1}, 2, nullptr), BP_OK) << r.text();
  ASSERT_EQ(r.submit({r.sum(0)}), BP_OK) << r.text();
  r.destroy_last();
  EXPECT_EQ(r.outcome(0), BP_ABORTED);
}

}  // namespace
}  // namespace bp::cpu
