// Ranks meet in memory that they share, or all of them know that they have none.
#include "backends/cpu/shm/lanes.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backplane/shell/boundary.hpp"

namespace bp::shm {
namespace {

class Store {
 public:
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.contains(key); });
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

using Plan = std::function<void(SegmentPlan& plan)>;
using AllLanes = std::vector<std::unique_ptr<Lanes>>;

// Lets `count` ranks meet, each on a thread of its own, whose plan `change` may alter.
AllLanes meet(uint32_t count, const Plan& change) {
  Store store;
  AllLanes all(count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      SegmentPlan plan{
          .rank = rank,
          .world_size = count,
          .put = [&](const std::string& key, const std::string& value) { store.put(key, value); },
          .get = [&](const std::string& key, uint32_t) { return store.get(key); }};
      change(plan);
      all[rank] = share_lanes(plan);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

void expect_none(const AllLanes& all) {
  for (const auto& lanes : all) EXPECT_EQ(lanes, nullptr);
}

TEST(Lanes, ShowWhatEachRankWrites) {
  const AllLanes all = meet(3, [](SegmentPlan&) {});
  for (const auto& lanes : all) ASSERT_NE(lanes, nullptr);
  for (uint64_t call = 0; call < 2 * Lanes::kLanes; ++call) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Slots& slots = all[rank]->of(call).slots();
      ASSERT_TRUE(slots.may_write(call / Lanes::kLanes));
      *slots.data(rank, call / Lanes::kLanes) = static_cast<std::byte>(10 * call + rank);
      slots.post(call / Lanes::kLanes);
    }
    for (uint32_t rank = 0; rank < 3; ++rank) {
      const Slots& slots = all[(rank + 1) % 3]->of(call).slots();
      ASSERT_TRUE(slots.has_posted(rank, call / Lanes::kLanes));
      EXPECT_EQ(*slots.data(rank, call / Lanes::kLanes), static_cast<std::byte>(10 * call + rank));
    }
  }
}

TEST(Lanes, StopARankThatGoesTooFarAhead) {
  const AllLanes all = meet(2, [](SegmentPlan&) {});
  Slots &first = all[0]->of(0).slots(), &second = all[1]->of(0).slots();
  for (uint64_t step = 0; step < Slots::kSlots; ++step) {
    ASSERT_TRUE(first.may_write(step));
    first.post(step);
    first.release(step);
  }
  EXPECT_FALSE(first.may_write(Slots::kSlots));
  second.release(0);
  EXPECT_TRUE(first.may_write(Slots::kSlots));
  EXPECT_FALSE(first.may_write(Slots::kSlots + 1));
}

TEST(Lanes, AreNoneIfOneRankDoesNotWantThem) {
  for (const uint32_t unwilling : {0U, 2U}) {
    expect_none(meet(3, [&](SegmentPlan& plan) { plan.is_wanted = plan.rank != unwilling; }));
  }
}

// As on another machine, where the process has another file or there is no such process.
TEST(Lanes, AreNoneIfOneRankCannotOpenTheFile) {
  const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
  const std::string self = std::to_string(getpid()) + " " + std::to_string(other);
  for (const std::string& place :
       {std::string(), std::string("0 0 backplane.cpu.ranks"), std::string("nonsense"),
        self + " backplane.cpu.ranks", self + " null"}) {
    expect_none(meet(2, [&](SegmentPlan& plan) {
      if (plan.rank == 0) return;
      plan.get = [&, get = plan.get](const std::string& key, uint32_t rank) {
        return key == "shm/at/0" ? place : get(key, rank);
      };
    }));
  }
  close(other);
}

TEST(Lanes, ReadTheirOption) {
  EXPECT_TRUE(read_option("1"));
  EXPECT_FALSE(read_option("0"));
  EXPECT_THROW(read_option(""), StatusError);
  EXPECT_THROW(read_option("yes"), StatusError);
}

}  // namespace
}  // namespace bp::shm
