#include "runtime/distributed/worker_clocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace bp::distributed {
namespace {

using Workers = std::vector<uint32_t>;

Workers applied_by(WorkerClocks& clocks) {
  Workers applied;
  while (const auto worker = clocks.next_to_apply()) applied.push_back(*worker);
  return applied;
}

Workers released_by(WorkerClocks& clocks) {
  Workers released;
  while (const auto worker = clocks.next_to_release()) released.push_back(*worker);
  return released;
}

TEST(WorkerClocks, AppliesPushesAsTheyCome) {
  WorkerClocks clocks(3, 1);
  clocks.push(2);
  clocks.push(0);
  EXPECT_EQ(applied_by(clocks), (Workers{2, 0}));
  EXPECT_EQ(released_by(clocks), (Workers{0, 2}));
  EXPECT_EQ(clocks.largest_lead(), 1u);
  EXPECT_EQ(clocks.held_back(), 0u);
}

TEST(WorkerClocks, AppliesPushesInTheOrderOfTheWorkersInLockstep) {
  WorkerClocks clocks(3, 0);
  clocks.push(2);
  EXPECT_EQ(applied_by(clocks), Workers{});
  clocks.push(0);
  EXPECT_EQ(applied_by(clocks), Workers{0});
  EXPECT_EQ(released_by(clocks), Workers{});
  clocks.push(1);
  EXPECT_EQ(applied_by(clocks), (Workers{1, 2}));
  EXPECT_EQ(released_by(clocks), (Workers{0, 1, 2}));
  EXPECT_EQ(clocks.largest_lead(), 0u);
  EXPECT_EQ(clocks.held_back(), 1u);
}

TEST(WorkerClocks, HoldsBackAWorkerThatIsAtTheBound) {
  WorkerClocks clocks(2, 2);
  for (uint64_t step = 1; step <= 2; ++step) {
    clocks.push(0);
    EXPECT_EQ(applied_by(clocks), Workers{0});
    EXPECT_EQ(released_by(clocks), Workers{0});
  }
  clocks.push(0);
  EXPECT_EQ(applied_by(clocks), Workers{0});
  EXPECT_EQ(released_by(clocks), Workers{});
  EXPECT_EQ(released_by(clocks), Workers{});
  EXPECT_EQ(clocks.held_back(), 1u) << "each push counts once";
  clocks.push(1);
  EXPECT_EQ(applied_by(clocks), Workers{1});
  EXPECT_EQ(released_by(clocks), (Workers{0, 1}));
  EXPECT_EQ(clocks.largest_lead(), 2u);
}

TEST(WorkerClocks, DoesNotCountWorkersThatHaveFinished) {
  WorkerClocks clocks(3, 0);
  clocks.push(1);
  clocks.push(2);
  EXPECT_EQ(applied_by(clocks), Workers{});
  clocks.finish(0);
  EXPECT_EQ(applied_by(clocks), (Workers{1, 2}));
  EXPECT_EQ(released_by(clocks), (Workers{1, 2}));
  clocks.finish(1);
  clocks.push(2);
  EXPECT_EQ(applied_by(clocks), Workers{2});
  EXPECT_EQ(released_by(clocks), Workers{2});
  EXPECT_FALSE(clocks.all_finished());
  clocks.finish(2);
  EXPECT_TRUE(clocks.all_finished());
  clocks.restart();
  EXPECT_FALSE(clocks.all_finished());
  EXPECT_EQ(clocks.steps(2), 0u);
}

// Workers push in a random order, as often as they may, until each has taken its steps.
class RandomRun {
 public:
  RandomRun(uint32_t workers, uint64_t staleness, uint32_t seed)
      : staleness_(staleness), random_(seed), clocks_(workers, staleness) {
    for (uint32_t worker = 0; worker < workers; ++worker) {
      left_.push_back(std::uniform_int_distribution<uint64_t>(0, 12)(random_));
      computes_.push_back(true);
      steps_.push_back(0);
    }
  }

  void run() {
    while (!clocks_.all_finished()) {
      Workers able;
      for (uint32_t worker = 0; worker < left_.size(); ++worker) {
        if (computes_[worker]) able.push_back(worker);
      }
      ASSERT_FALSE(able.empty()) << "no worker can go on";
      step(able[std::uniform_int_distribution<size_t>(0, able.size() - 1)(random_)]);
    }
    for (uint32_t worker = 0; worker < left_.size(); ++worker) {
      EXPECT_EQ(clocks_.steps(worker), steps_[worker]);
      EXPECT_EQ(left_[worker], 0u);
    }
    EXPECT_LE(clocks_.largest_lead(), staleness_);
  }

 private:
  void step(uint32_t worker) {
    computes_[worker] = false;
    if (left_[worker] == 0) {
      clocks_.finish(worker);
      is_finished_.push_back(worker);
    } else {
      --left_[worker];
      clocks_.push(worker);
    }
    for (const uint32_t applied : applied_by(clocks_)) ++steps_[applied];
    for (const uint32_t released : released_by(clocks_)) {
      computes_[released] = true;
      for (uint32_t other = 0; other < steps_.size(); ++other) {
        if (std::ranges::find(is_finished_, other) != is_finished_.end()) continue;
        EXPECT_LE(steps_[released], steps_[other] + staleness_);
      }
    }
  }

  const uint64_t staleness_;
  std::mt19937 random_;
  WorkerClocks clocks_;
  std::vector<uint64_t> left_, steps_;
  std::vector<bool> computes_;
  Workers is_finished_;
};

TEST(WorkerClocks, KeepsTheBoundInEveryOrder) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomRun(1 + seed % 5, seed % 4, seed).run();
  }
}

}  // namespace
}  // namespace bp::distributed
