// Ranks that meet in a store. Each is a thread.
#include "backends/cpu/mpi/meeting.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/groups/test_store.hpp"
#include "backplane/shell/rank_call.hpp"

namespace bp::mpi {
namespace {

constexpr uint64_t kLong = 60'000'000'000, kShort = 200'000'000;

class Meetings : public testing::Test {
 protected:
  Meetings() {
    std::string name = testing::TempDir() + "/meeting.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = name;
  }
  ~Meetings() override { std::filesystem::remove_all(folder_); }

  // How one rank fared.
  struct Result {
    Outcome outcome;
    std::vector<int> processes;
  };

  Result meet_as(uint32_t rank, uint32_t size, int process, uint64_t timeout_ns = kLong,
                 std::chrono::milliseconds start_time = {}) const {
    const cpu::FileStore store(folder_);
    Result result;
    result.outcome = outcome_of([&] {
      result.processes = meet({.store = *store.table(),
                               .prefix = "",
                               .rank = rank,
                               .world_size = size,
                               .timeout_ns = timeout_ns,
                               .call = "create",
                               .start = [=](uint64_t) {
                                 std::this_thread::sleep_for(start_time);
                                 return process;
                               }});
    });
    return result;
  }

  // Lets a rank in each of the given processes meet at the same time.
  std::vector<Result> meet_all(const std::vector<int>& processes) const {
    std::vector<Result> results(processes.size());
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < processes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        results[rank] = meet_as(rank, static_cast<uint32_t>(processes.size()), processes[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  std::filesystem::path folder_;
};

TEST_F(Meetings, TellAllRanksTheProcessOfEach) {
  for (const Result& result : meet_all({7, 3, 5})) {
    EXPECT_EQ(result.outcome.status, BP_OK) << result.outcome.text;
    EXPECT_EQ(result.processes, (std::vector<int>{7, 3, 5}));
  }
}

TEST_F(Meetings, RefuseTwoRanksInOneProcess) {
  for (const Result& result : meet_all({0, 1, 0})) {
    EXPECT_EQ(result.outcome.status, BP_UNSUPPORTED);
    EXPECT_EQ(result.outcome.text,
              "create: rank 0 and rank 2 are both process 0 of MPI; each must be a process of its "
              "own that one mpirun has started");
  }
}

TEST_F(Meetings, NameTheRankThatIsMissing) {
  Result first, last;
  std::thread thread([&] { last = meet_as(2, 3, 2, kShort); });
  first = meet_as(0, 3, 0, kShort);
  thread.join();
  for (const Result& result : {first, last}) {
    EXPECT_EQ(result.outcome.status, BP_TIMEOUT);
    EXPECT_EQ(result.outcome.text, "create: rank 1 did not come within 200 ms");
  }
}

TEST_F(Meetings, NameRankZeroThatIsMissing) {
  const Result result = meet_as(1, 2, 1, kShort);
  EXPECT_EQ(result.outcome.status, BP_TIMEOUT);
  EXPECT_EQ(result.outcome.text, "create: rank 0 did not come within 200 ms");
}

// Rank 0 comes when rank 1 has given up. Both must fail.
TEST_F(Meetings, FailOnAllRanksWhenOneHasGivenUp) {
  EXPECT_EQ(meet_as(1, 2, 1, kShort).outcome.status, BP_TIMEOUT);
  const Result late = meet_as(0, 2, 0, kShort);
  EXPECT_EQ(late.outcome.status, BP_TIMEOUT);
  EXPECT_EQ(late.outcome.text, "create: rank 1 did not come within 200 ms");
}

// All have come, and then MPI does not start for rank 0 in the time of rank 1.
TEST_F(Meetings, FailOnAllRanksWhenOneGivesUpWhileMpiStarts) {
  Result other;
  std::thread thread([&] { other = meet_as(1, 2, 1, kShort); });
  const Result first = meet_as(0, 2, 0, kLong, std::chrono::milliseconds(600));
  thread.join();
  EXPECT_EQ(other.outcome.status, BP_TIMEOUT);
  EXPECT_EQ(other.outcome.text, "create: rank 0 did not come within 200 ms");
  EXPECT_EQ(first.outcome.status, BP_TIMEOUT);
  EXPECT_EQ(first.outcome.text, "create: rank 1 has given up");
}

TEST_F(Meetings, RefuseGroupsOfOtherSizes) {
  Result other;
  std::thread thread([&] { other = meet_as(1, 3, 1); });
  const Result first = meet_as(0, 2, 0);
  thread.join();
  EXPECT_EQ(first.outcome.status, BP_INVALID_ARGUMENT);
  EXPECT_EQ(first.outcome.text, "create: rank 1 makes a group of 3 ranks, rank 0 one of 2");
  EXPECT_EQ(other.outcome.status, BP_INVALID_ARGUMENT);
  EXPECT_EQ(other.outcome.text, "create: rank 0 makes a group of 2 ranks, rank 1 one of 3");
}

}  // namespace
}  // namespace bp::mpi
