// Every kind of collective at sizes around those of slots, on ranks that are threads. Elements are
// numbers that say where they come from, so that each result is known.
#include "backends/cpu/shm/collective.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/shm/call.hpp"

namespace bp::shm {
namespace {

using Floats = std::vector<float>;

class Memory final : public GroupMemory {
 public:
  explicit Memory(Floats& values) : values_(values) {}
  std::byte* open() override { return reinterpret_cast<std::byte*>(values_.data()); }
  void close() override {}

 private:
  Floats& values_;
};

// The memory of `world_size` ranks in this process, which is zeros at first.
class World {
 public:
  explicit World(uint32_t world_size) {
    const uint64_t size_bytes = Lanes::memory_bytes(world_size);
    const MemoryFile file("test", "backplane.test", size_bytes);
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      lanes_.push_back(std::make_unique<Lanes>(std::make_unique<Mapping>("test", file, size_bytes),
                                               rank, world_size));
    }
  }
  uint32_t size() const { return static_cast<uint32_t>(lanes_.size()); }
  Lanes& lanes(uint32_t rank) { return *lanes_[rank]; }

  // Runs body(rank) for each rank, on a thread of its own.
  void run(const std::function<void(uint32_t rank)>& body) const {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size(); ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Lanes>> lanes_;
};

// Element i of what a rank sends, a small integer, so that sums are exact.
float element(uint64_t rank, uint64_t i) { return static_cast<float>((rank + 1) * 7 + i % 1000); }

Floats sent_by(uint32_t rank, uint64_t count) {
  Floats values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = element(rank, i);
  return values;
}

RankCall call_of(bp_collective_kind kind, uint32_t rank, uint32_t world_size, uint64_t count) {
  RankCall call;
  call.kind = kind;
  call.rank = rank;
  call.world_size = world_size;
  call.root = world_size - 1;
  call.reduction = reduces(kind) ? bp_reduction{BP_REDUCTION_SUM} : 0;
  call.dtype = BP_F32;
  call.count = count;
  call.send_counts = call.receive_counts = std::vector<uint64_t>(world_size, count);
  return call;
}

void finish(Lanes& lanes, const RankCall& call, uint64_t sequence) {
  Call running(lanes, call, sequence);
  while (!running.poll()) sched_yield();
}

// Runs a call on one rank, and returns what it receives.
Floats result_of(World& world, RankCall call, uint64_t sequence) {
  Floats sent = sent_by(call.rank, sent_elements(call));
  Floats received(received_elements(call), -1);
  call.send = std::make_shared<Memory>(sent);
  call.receive = std::make_shared<Memory>(received);
  finish(world.lanes(call.rank), call, sequence);
  return received;
}

// Returns element i of what a rank should receive.
float wanted(const RankCall& call, uint64_t i) {
  const uint64_t count = call.count, part = i / count, at = i % count;
  float sum = 0;
  switch (call.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
    case BP_COLLECTIVE_REDUCE:
      for (uint32_t rank = 0; rank < call.world_size; ++rank) sum += element(rank, i);
      return sum;
    case BP_COLLECTIVE_REDUCE_SCATTER:
      for (uint32_t rank = 0; rank < call.world_size; ++rank) {
        sum += element(rank, call.rank * count + i);
      }
      return sum;
    case BP_COLLECTIVE_BROADCAST:
      return element(call.root, i);
    case BP_COLLECTIVE_ALL_GATHER:
    case BP_COLLECTIVE_GATHER:
      return element(part, at);
    case BP_COLLECTIVE_SCATTER:
      return element(call.root, call.rank * count + i);
    default:  // all_to_all
      return element(part, call.rank * count + at);
  }
}

constexpr bp_collective_kind kKinds[] = {BP_COLLECTIVE_ALL_REDUCE,     BP_COLLECTIVE_REDUCE,
                                         BP_COLLECTIVE_BROADCAST,      BP_COLLECTIVE_ALL_GATHER,
                                         BP_COLLECTIVE_REDUCE_SCATTER, BP_COLLECTIVE_ALL_TO_ALL,
                                         BP_COLLECTIVE_GATHER,         BP_COLLECTIVE_SCATTER};

TEST(SharedCollective, IsRightForEveryKindAtEachSize) {
  constexpr uint64_t kSlot = Slots::kDataBytes / sizeof(float);
  for (const uint32_t world_size : {2U, 3U, 5U}) {
    World world(world_size);
    world.run([&](uint32_t rank) {
      uint64_t sequence = 0;
      for (const bp_collective_kind kind : kKinds) {
        for (const uint64_t count : {uint64_t{1}, uint64_t{1001}, kSlot / 2, kSlot / 2 + 1, kSlot,
                                     kSlot + 3, 5 * kSlot + 7}) {
          const RankCall call = call_of(kind, rank, world_size, count);
          const Floats got = result_of(world, call, sequence++);
          uint64_t wrong = 0;
          for (uint64_t i = 0; i < got.size(); ++i) wrong += got[i] != wanted(call, i) ? 1 : 0;
          EXPECT_EQ(wrong, 0) << kind_name(kind) << " of " << count << " on rank " << rank << " of "
                              << world_size;
        }
      }
    });
  }
}

// Parts of other sizes on each rank, of which some are none.
TEST(SharedCollective, MovesUnevenParts) {
  World world(3);
  const auto size_of = [](uint32_t from, uint32_t to) -> uint64_t {
    return from == to ? 0 : from * 40'000 + to * 3;
  };
  world.run([&](uint32_t rank) {
    RankCall call = call_of(BP_COLLECTIVE_ALL_TO_ALL, rank, 3, 0);
    for (uint32_t peer = 0; peer < 3; ++peer) {
      call.send_counts[peer] = size_of(rank, peer);
      call.receive_counts[peer] = size_of(peer, rank);
    }
    const Floats got = result_of(world, call, 0);
    uint64_t at = 0;
    for (uint32_t peer = 0; peer < 3; ++peer) {
      uint64_t from = 0;
      for (uint32_t to = 0; to < rank; ++to) from += size_of(peer, to);
      for (uint64_t i = 0; i < size_of(peer, rank); ++i) {
        ASSERT_EQ(got[at++], element(peer, from + i)) << "from " << peer << " to " << rank;
      }
    }
  });
}

TEST(SharedCollective, ScalesAndAverages) {
  World world(3);
  constexpr uint64_t kCount = 40'000;
  world.run([&](uint32_t rank) {
    RankCall call = call_of(BP_COLLECTIVE_ALL_REDUCE, rank, 3, kCount);
    call.reduction = BP_REDUCTION_SCALED_SUM;
    call.scale = rank + 1;
    const Floats scaled = result_of(world, call, 0);
    call.reduction = BP_REDUCTION_AVERAGE;
    const Floats average = result_of(world, call, 1);
    for (uint64_t i = 0; i < kCount; ++i) {
      const float a = element(0, i), b = element(1, i), c = element(2, i);
      ASSERT_EQ(scaled[i], a + 2 * b + 3 * c);
      ASSERT_EQ(average[i], (a + b + c) / 3);
    }
  });
}

TEST(SharedCollective, TellsRanksThatGiveOtherCounts) {
  World world(2);
  world.run([&](uint32_t rank) {
    const RankCall call = call_of(BP_COLLECTIVE_ALL_REDUCE, rank, 2, 8 + rank);
    try {
      static_cast<void>(result_of(world, call, 0));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const StatusError& e) {
      EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(e.what()).find("other counts, such as"), std::string::npos) << e.what();
    }
  });
}

// Rank 0 makes the calls in order, and rank 1 makes the last one first.
TEST(SharedCollective, RunsCallsOfSeveralLanesInAnyOrder) {
  World world(2);
  world.run([&](uint32_t rank) {
    const RankCall call = call_of(BP_COLLECTIVE_ALL_REDUCE, rank, 2, 100);
    std::vector<uint64_t> order(Lanes::kLanes);
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::thread> threads;
    if (rank == 1) std::reverse(order.begin(), order.end());
    for (const uint64_t sequence : order) {
      threads.emplace_back([&, sequence] { EXPECT_EQ(result_of(world, call, sequence)[3], 27); });
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(SharedCollective, SaysWhoHasNotCome) {
  World world(3);
  const RankCall call = call_of(BP_COLLECTIVE_BARRIER, 0, 3, 0);
  Call running(world.lanes(0), call, 0);
  EXPECT_EQ(running.awaited(), "");
  EXPECT_FALSE(running.poll());
  EXPECT_EQ(running.awaited(), " rank 1 rank 2");
  const RankCall second = call_of(BP_COLLECTIVE_BARRIER, 1, 3, 0);
  Call other(world.lanes(1), second, 0);
  EXPECT_FALSE(other.poll());
  EXPECT_EQ(running.awaited(), " rank 2");
}

// Rank 1 makes the first step of a long call, and no more.
TEST(SharedCollective, SaysWhoHasStopped) {
  World world(2);
  Floats values[2] = {Floats(100'000), Floats(100'000)};
  RankCall calls[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    calls[rank] = call_of(BP_COLLECTIVE_ALL_REDUCE, rank, 2, 100'000);
    calls[rank].send = calls[rank].receive = std::make_shared<Memory>(values[rank]);
  }
  Call first(world.lanes(0), calls[0], 0), second(world.lanes(1), calls[1], 0);
  EXPECT_FALSE(second.poll());
  EXPECT_FALSE(first.poll());
  EXPECT_EQ(first.awaited(), " rank 1");
  EXPECT_EQ(second.awaited(), "");
}

// What rank 0 had posted before it gave up is still there. The other rank must not take it for a
// call that both ranks make.
TEST(SharedCollective, DoesNotBeginOnALateRankOfAGroupThatHasFailed) {
  World world(2);
  const RankCall calls[2] = {call_of(BP_COLLECTIVE_BARRIER, 0, 2, 0),
                             call_of(BP_COLLECTIVE_BARRIER, 1, 2, 0)};
  Call first(world.lanes(0), calls[0], 0), second(world.lanes(1), calls[1], 0);
  EXPECT_FALSE(first.poll());
  EXPECT_FALSE(world.lanes(1).has_ended());
  world.lanes(0).end();
  EXPECT_TRUE(world.lanes(1).has_ended());
  EXPECT_FALSE(second.poll());
  EXPECT_FALSE(second.has_begun());
}

}  // namespace
}  // namespace bp::shm
