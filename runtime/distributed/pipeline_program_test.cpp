#include "runtime/distributed/pipeline_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace bp::distributed {
namespace {

using enum PipelineWork;
using Programs = std::vector<PipelineProgram>;

Programs programs_of(const PipelineSchedule& schedule, bool has_backward = true) {
  Programs programs;
  for (uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    programs.push_back(make_program(schedule, rank, has_backward));
  }
  return programs;
}

// Runs programs where it is hardest: a call moves its tensor only while the other rank is in its
// call too, the calls of a step end when all of them have, and each step waits for the one before.
// Returns whether all ranks reach their ends. Transfers that meet must be the same.
bool all_end(const Programs& programs) {
  std::vector<size_t> at(programs.size());
  std::vector<std::vector<bool>> is_done(programs.size());
  const auto enter = [&](size_t rank) {
    if (at[rank] == programs[rank].size()) return;
    is_done[rank].assign(programs[rank][at[rank]].calls.size(), false);
  };
  for (size_t rank = 0; rank < programs.size(); ++rank) enter(rank);
  // Returns the first call of `rank` with `peer` in this direction that has not moved its tensor.
  const auto open_call = [&](size_t rank, size_t peer, bool is_send) -> size_t {
    if (at[rank] == programs[rank].size()) return SIZE_MAX;
    const auto& calls = programs[rank][at[rank]].calls;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!is_done[rank][i] && calls[i].peer == peer && calls[i].is_send == is_send) return i;
    }
    return SIZE_MAX;
  };
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t from = 0; from < programs.size(); ++from) {
      for (size_t to = 0; to < programs.size(); ++to) {
        const size_t send = open_call(from, to, true), receive = open_call(to, from, false);
        if (send == SIZE_MAX || receive == SIZE_MAX) continue;
        EXPECT_EQ(programs[from][at[from]].calls[send].transfer,
                  programs[to][at[to]].calls[receive].transfer);
        is_done[from][send] = is_done[to][receive] = has_moved = true;
      }
    }
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      while (at[rank] < programs[rank].size() &&
             std::ranges::find(is_done[rank], false) == is_done[rank].end()) {
        ++at[rank];
        enter(rank);
        has_moved = true;
      }
    }
  }
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    if (at[rank] < programs[rank].size()) return false;
  }
  return true;
}

// Returns whether a rank has received what an action needs before it, and sends what it has.
bool is_complete(const PipelineSchedule& schedule, const PipelineProgram& program) {
  std::vector<PipelineTransfer> received, made;
  const auto has = [](const auto& list, const PipelineTransfer& transfer) {
    return std::ranges::find(list, transfer) != list.end();
  };
  for (const PipelineProgramStep& step : program) {
    for (const auto& [transfer, is_send, peer] : step.calls) {
      if (is_send && !has(made, transfer)) return false;
      if (!is_send) received.push_back(transfer);
    }
    if (!step.action) continue;
    const auto needed = input_of(*step.action, schedule.stage_count());
    if (needed && !has(received, *needed) && !has(made, *needed)) return false;
    const auto result = result_of(*step.action, schedule.stage_count());
    if (result) made.push_back(*result);
  }
  return true;
}

void expect_runs(const PipelineSchedule& schedule) {
  for (const bool has_backward : {true, false}) {
    const Programs programs = programs_of(schedule, has_backward);
    EXPECT_TRUE(all_end(programs)) << schedule.name << "\n" << describe(schedule);
    for (const PipelineProgram& program : programs) {
      EXPECT_TRUE(is_complete(schedule, program)) << describe(schedule);
    }
  }
}

TEST(PipelineProgram, EndsForAllSchedules) {
  for (uint32_t ranks = 1; ranks <= 6; ++ranks) {
    for (uint32_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      for (const char* name : {"gpipe", "1f1b", "zb"}) {
        expect_runs(make_pipeline_schedule(name, ranks, micro_batches));
      }
      if (micro_batches % ranks != 0) continue;
      for (uint32_t stages = 2; stages <= 3; ++stages) {
        expect_runs(make_interleaved_schedule(ranks, micro_batches, stages));
      }
    }
  }
}

// Returns a schedule with stages on any rank, and actions in any order in which all ranks go on.
PipelineSchedule random_schedule(std::mt19937& random) {
  const auto below = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  PipelineSchedule schedule;
  schedule.name = "random";
  schedule.micro_batch_count = 1 + below(4);
  schedule.ranks.resize(1 + below(4));
  const uint32_t stage_count = 1 + below(6);
  for (uint32_t i = 0; i < stage_count; ++i) {
    schedule.stage_ranks.push_back(below(schedule.rank_count()));
  }
  std::vector<PipelineAction> ready, done;
  for (uint32_t i = 0; i < schedule.micro_batch_count; ++i) ready.push_back({kForward, i, 0});
  while (!ready.empty()) {
    std::swap(ready[below(static_cast<uint32_t>(ready.size()))], ready.back());
    const auto [work, micro_batch, stage] = ready.back();
    ready.pop_back();
    schedule.ranks[schedule.stage_ranks[stage]].push_back({work, micro_batch, stage});
    const bool is_whole = random() % 2 == 0;
    const PipelineWork back = is_whole ? kBackward : kBackwardInput;
    if (work == kForward && stage + 1 < stage_count) {
      ready.push_back({kForward, micro_batch, stage + 1});
    } else if (work == kForward) {
      ready.push_back({back, micro_batch, stage});
    } else if (work != kBackwardWeight && stage > 0) {
      ready.push_back({back, micro_batch, stage - 1});
    }
    if (work == kBackwardInput) ready.push_back({kBackwardWeight, micro_batch, stage});
  }
  return schedule;
}

TEST(PipelineProgram, EndsForRandomSchedules) {
  constexpr uint32_t kSeed = 20260;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    const PipelineSchedule schedule = random_schedule(random);
    ASSERT_EQ(problem_of(schedule), "") << "seed " << kSeed << ", schedule " << i;
    expect_runs(schedule);
  }
}

TEST(PipelineProgram, WouldDeadlockWithEachCallAlone) {
  const PipelineSchedule schedule = make_1f1b_schedule(2, 2);
  Programs programs(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    for (const PipelineAction& action : schedule.ranks[rank]) {
      const auto needed = input_of(action, 2), result = result_of(action, 2);
      if (needed) programs[rank].push_back({{{*needed, false, 1 - rank}}, {}});
      programs[rank].push_back({{}, action});
      if (result) programs[rank].push_back({{{*result, true, 1 - rank}}, {}});
    }
  }
  EXPECT_FALSE(all_end(programs)) << "so all_end() can tell";
}

TEST(PipelineProgram, SubmitsTheCallsBetweenTwoActionsTogether) {
  const PipelineProgram program = make_program(make_1f1b_schedule(2, 2), 0, true);
  ASSERT_EQ(program.size(), 4u);
  EXPECT_TRUE(program[0].calls.empty());
  ASSERT_EQ(program[1].calls.size(), 1u);
  EXPECT_TRUE(program[1].calls[0].is_send);
  ASSERT_EQ(program[2].calls.size(), 2u) << "an activation goes out, and a gradient comes in";
  EXPECT_EQ(program[2].calls[0].transfer, (PipelineTransfer{false, 1, 1}));
  EXPECT_EQ(program[2].calls[1].transfer, (PipelineTransfer{true, 0, 0}));
  EXPECT_EQ(make_program(make_1f1b_schedule(2, 2), 0, false).size(), 3u);
}

}  // namespace
}  // namespace bp::distributed
