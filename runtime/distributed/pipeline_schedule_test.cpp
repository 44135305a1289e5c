#include "backplane/runtime/distributed/pipeline_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/distributed/test_messages.hpp"

namespace bp::distributed {
namespace {

using Counts = std::vector<uint32_t>;
using enum PipelineWork;

// The forward takes as long as each half of the backward.
constexpr PipelineDurations kEqual{.forward = 1, .backward_input = 1, .backward_weight = 1};

double bubble_of(const PipelineSchedule& schedule) {
  return timeline_of(schedule, kEqual).bubble_share();
}

std::vector<PipelineSchedule> schedules_of(uint32_t ranks, uint32_t micro_batches) {
  std::vector<PipelineSchedule> schedules{make_gpipe_schedule(ranks, micro_batches),
                                          make_1f1b_schedule(ranks, micro_batches),
                                          make_zero_bubble_schedule(ranks, micro_batches),
                                          make_interleaved_schedule(ranks, micro_batches, 1)};
  for (const uint32_t stages : {2u, 3u}) {
    if (micro_batches % ranks != 0) continue;
    schedules.push_back(make_interleaved_schedule(ranks, micro_batches, stages));
  }
  return schedules;
}

TEST(PipelineSchedule, HasNoProblemWithAnyNumbers) {
  for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (uint32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
      for (const PipelineSchedule& schedule : schedules_of(ranks, micro_batches)) {
        EXPECT_EQ(problem_of(schedule), "") << schedule.name << "\n" << describe(schedule);
      }
    }
  }
}

TEST(PipelineSchedule, HasTheOrderOfThePapers) {
  EXPECT_EQ(describe(make_gpipe_schedule(2, 2)),
            "F0.0 F1.0 B0.0 B1.0\n"
            "F0.1 F1.1 B0.1 B1.1\n");
  EXPECT_EQ(describe(make_1f1b_schedule(3, 4)),
            "F0.0 F1.0 F2.0 B0.0 F3.0 B1.0 B2.0 B3.0\n"
            "F0.1 F1.1 B0.1 F2.1 B1.1 F3.1 B2.1 B3.1\n"
            "F0.2 B0.2 F1.2 B1.2 F2.2 B2.2 F3.2 B3.2\n");
  EXPECT_EQ(describe(make_interleaved_schedule(2, 2, 2)),
            "F0.0 F1.0 F0.2 F1.2 B0.2 B1.2 B0.0 B1.0\n"
            "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 B0.1 B1.1\n");
  EXPECT_EQ(describe(make_zero_bubble_schedule(2, 3)),
            "F0.0 F1.0 I0.0 W0.0 F2.0 I1.0 W1.0 I2.0 W2.0\n"
            "F0.1 I0.1 F1.1 I1.1 W0.1 F2.1 I2.1 W1.1 W2.1\n");
}

TEST(PipelineSchedule, HasTheBubblesOfThePapers) {
  for (const uint32_t p : {1u, 2u, 4u, 8u}) {
    for (const uint32_t m : {p, 2 * p, 5 * p}) {
      const double warm = p - 1, count = m;
      EXPECT_NEAR(bubble_of(make_gpipe_schedule(p, m)), warm / (count + warm), 1e-12);
      EXPECT_NEAR(bubble_of(make_1f1b_schedule(p, m)), warm / (count + warm), 1e-12);
      EXPECT_NEAR(timeline_of(make_1f1b_schedule(p, m), kEqual).step_time, 3 * (count + warm),
                  1e-12);
      for (const uint32_t v : {1u, 2u, 4u}) {
        const PipelineSchedule schedule = make_interleaved_schedule(p, m, v);
        EXPECT_NEAR(bubble_of(schedule), warm / (v * count + warm), 1e-12) << p << m << v;
      }
      const PipelineTimeline split = timeline_of(make_zero_bubble_schedule(p, m), kEqual);
      EXPECT_NEAR(split.step_time, 3 * count + warm, 1e-12) << p << " ranks, " << m;
      EXPECT_NEAR(split.bubble_share(), warm / (3 * count + warm), 1e-12);
    }
  }
}

TEST(PipelineSchedule, TakesLessTimeWithSplitBackwards) {
  for (uint32_t p = 2; p <= 8; ++p) {
    for (uint32_t m = 1; m <= 12; ++m) {
      const PipelineDurations durations{
          .forward = 1, .backward_input = 1.2, .backward_weight = 0.7, .communication = 0.1};
      EXPECT_LT(timeline_of(make_zero_bubble_schedule(p, m), durations).step_time,
                timeline_of(make_1f1b_schedule(p, m), durations).step_time)
          << p << " ranks, " << m << " micro-batches";
    }
  }
}

TEST(PipelineSchedule, KeepsAsManyMicroBatchesAsThePapersSay) {
  EXPECT_EQ(largest_alive_counts(make_gpipe_schedule(4, 8)), (Counts{8, 8, 8, 8}));
  EXPECT_EQ(largest_alive_counts(make_1f1b_schedule(4, 8)), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(largest_alive_counts(make_1f1b_schedule(4, 2)), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(largest_alive_counts(make_zero_bubble_schedule(4, 8)), (Counts{4, 4, 4, 4}));
  // (v - 1) * p + 2 * (p - 1 - rank) forwards come before the first pair of both.
  EXPECT_EQ(largest_alive_counts(make_interleaved_schedule(4, 8, 2)), (Counts{11, 9, 7, 5}));
}

TEST(PipelineSchedule, CountsCommunicationBetweenRanksAlone) {
  const PipelineDurations slow{
      .forward = 1, .backward_input = 1, .backward_weight = 1, .communication = 10};
  const PipelineTimeline timeline = timeline_of(make_1f1b_schedule(2, 1), slow);
  EXPECT_EQ(timeline.step_time, 1 + 10 + 1 + 2 + 10 + 2);
  EXPECT_EQ(timeline.ranks[1][0].begin, 11);
  EXPECT_EQ(timeline.ranks[0][1].begin, 24);
  EXPECT_EQ(timeline_of(make_interleaved_schedule(1, 1, 3), slow).step_time, 9);
  EXPECT_EQ(timeline_of(make_gpipe_schedule(2, 2), {0, 0, 0, 0}).bubble_share(), 0);
}

TEST(PipelineSchedule, TellsWhatIsMissingOrTooMuch) {
  PipelineSchedule schedule = make_1f1b_schedule(2, 2);
  schedule.ranks[1].pop_back();
  EXPECT_EQ(problem_of(schedule),
            "the backward of the input of micro-batch 1 at stage 1 is missing on rank 1");
  schedule.ranks[1].push_back({kBackwardInput, 1, 1});
  EXPECT_EQ(problem_of(schedule),
            "the backward of the weights of micro-batch 1 at stage 1 is missing on rank 1");
  schedule.ranks[1].push_back({kBackwardWeight, 1, 1});
  EXPECT_EQ(problem_of(schedule), "") << "halves may stand for a whole";
  schedule.ranks[1].push_back({kBackward, 1, 1});
  EXPECT_EQ(problem_of(schedule),
            "action 5 of rank 1, backward of micro-batch 1 at stage 1, comes twice; allowed: once");
  schedule.ranks[1].back().stage = 0;
  EXPECT_EQ(problem_of(schedule),
            "action 5 of rank 1, backward of micro-batch 1 at stage 0; allowed: the stages of this "
            "rank, and this one is on rank 0");
  schedule.ranks[1].back().stage = 2;
  EXPECT_EQ(problem_of(schedule),
            "action 5 of rank 1, backward of micro-batch 1 at stage 2; allowed: micro-batches "
            "below 2 and stages below 2");
  schedule.stage_ranks[1] = 7;
  EXPECT_EQ(problem_of(schedule), "stage 1 is on rank 7; allowed: below 2, the number of ranks");
  EXPECT_EQ(problem_of({}),
            "there are 0 micro-batches, 0 ranks and 0 stages; allowed: at least 1 of each");
}

TEST(PipelineSchedule, TellsWhichRankWaitsForEver) {
  PipelineSchedule schedule = make_1f1b_schedule(2, 2);
  std::swap(schedule.ranks[0][1], schedule.ranks[0][2]);
  EXPECT_EQ(problem_of(schedule), "") << "less is alive, but it goes on";
  std::swap(schedule.ranks[1][0], schedule.ranks[1][2]);
  EXPECT_EQ(problem_of(schedule),
            "action 1 of rank 0, backward of micro-batch 0 at stage 0, waits for ever for the "
            "backward of micro-batch 0 at stage 1; allowed: an order in which all ranks go on");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { check_schedule(schedule); }),
              "the schedule '1f1b': action 1 of rank 0");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { timeline_of(schedule, kEqual); }), "waits");
  expect_part(message_of(BP_INVALID_ARGUMENT, [&] { largest_alive_counts(schedule); }), "waits");
  PipelineSchedule split = make_zero_bubble_schedule(1, 1);
  std::swap(split.ranks[0][1], split.ranks[0][2]);
  expect_part(problem_of(split), "waits for ever for the backward of the input of micro-batch 0");
  std::swap(split.ranks[0][0], split.ranks[0][2]);
  expect_part(problem_of(split), "waits for ever for the forward of micro-batch 0 at stage 0");
}

TEST(PipelineSchedule, RefusesNumbersAndNames) {
  const auto refused = [](const std::function<void()>& call) {
    return message_of(BP_INVALID_ARGUMENT, call);
  };
  EXPECT_EQ(refused([] { make_interleaved_schedule(4, 6, 2); }),
            "make_interleaved_schedule: there are 6 micro-batches for 4 ranks; allowed: a multiple "
            "of their number");
  EXPECT_EQ(refused([] { make_gpipe_schedule(2, 0); }),
            "make_gpipe_schedule: there are 2 ranks, 0 micro-batches and 1 stages on each rank; "
            "allowed: at least 1 of each");
  EXPECT_EQ(refused([] { make_pipeline_schedule("2f2b", 2, 4); }),
            "make_pipeline_schedule: the name is '2f2b'; allowed: gpipe, 1f1b, interleaved, zb");
  EXPECT_EQ(refused([] { make_pipeline_schedule("zb", 2, 4, 2); }),
            "make_pipeline_schedule: 'zb' is asked for 2 stages on each rank; allowed: 1, and more "
            "for 'interleaved'");
  expect_part(refused([] { timeline_of(make_1f1b_schedule(2, 2), {.forward = -1}); }),
              "timeline_of: a duration is -1");
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb"}) {
    EXPECT_EQ(make_pipeline_schedule(name, 2, 4).name, name);
  }
}

TEST(PipelineSchedule, KnowsTheStagesOfARank) {
  const PipelineSchedule schedule = make_interleaved_schedule(2, 2, 3);
  EXPECT_EQ(schedule.stage_count(), 6u);
  EXPECT_EQ(schedule.stages_of(1), (Counts{1, 3, 5}));
}

}  // namespace
}  // namespace bp::distributed
