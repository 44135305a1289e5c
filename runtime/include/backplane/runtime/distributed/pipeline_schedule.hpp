// Schedules of pipeline parallelism as data: who computes what in which order, and what this costs.
//
//   const bd::PipelineSchedule schedule = bd::make_1f1b_schedule(4, 16);
//   const bd::PipelineTimeline timeline = bd::timeline_of(schedule, {.forward = 1});
//   timeline.bubble_share();                   // 3 / 19: the share of the time without work.
//   bd::largest_alive_counts(schedule);        // 4, 3, 2, 1 micro-batches with activations.
//
// A model is a chain of stages. A batch is cut into micro-batches, and each of them runs forward
// through all stages and then backward. A rank has one stage or several ("virtual" stages), and
// does its actions one after the other, in the order of its list. An action starts when the rank is
// free and when what it needs is there:
//
//   kForward         needs the forward of the stage before.
//   kBackward        needs the forward of its own stage and the backward of the stage behind it.
//   kBackwardInput   is the half of a backward that gives the gradient of the stage's input. It
//                    needs what a backward needs, and serves the stage before as a backward does.
//   kBackwardWeight  is the half that gives the gradients of the weights. It needs the
//                    kBackwardInput of its stage. It runs at any time after that, so schedules fill
//                    gaps with it.
//
// Rules for everything here:
//   Values     It is plain data. Nothing here knows tensors, devices or groups.
//   Threads    Functions are safe from any thread.
//   Blocking   Nothing waits.
//   Errors     Throws bp::Error with BP_INVALID_ARGUMENT, which names the argument, what was given
//              and what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bp::distributed {

enum class PipelineWork : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

// Returns "forward", "backward", "backward of the input" or "backward of the weights".
const char* name_of(PipelineWork work);

struct PipelineAction {
  PipelineWork work;
  uint32_t micro_batch;  // From 0.
  uint32_t stage;        // Of the whole model, from 0.

  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

struct PipelineSchedule {
  std::string name;
  uint32_t micro_batch_count = 0;
  std::vector<uint32_t> stage_ranks;               // The rank that has each stage.
  std::vector<std::vector<PipelineAction>> ranks;  // The actions of each rank, in order.

  uint32_t rank_count() const { return static_cast<uint32_t>(ranks.size()); }
  uint32_t stage_count() const { return static_cast<uint32_t>(stage_ranks.size()); }
  std::vector<uint32_t> stages_of(uint32_t rank) const;
};

// ---- Generators --------------------------------------------------------------------------------

// Below, p is the number of ranks, m that of micro-batches, and v that of stages on each rank. All
// are at least 1. Stage s is on rank s % p. With equal durations of all stages, and without
// communication, the bubble is the share of the time in which a rank has no work.

// All forwards come before all backwards. The bubble is (p - 1) / (m + p - 1), and the activations
// of all m micro-batches are alive at once. (Huang et al. 2019, GPipe.)
PipelineSchedule make_gpipe_schedule(uint32_t rank_count, uint32_t micro_batch_count);

// Each rank does one forward and one backward in turn, as soon as it can. The bubble is that of
// GPipe, but at most p - rank micro-batches are alive. (Narayanan et al. 2021, PipeDream-Flush.)
PipelineSchedule make_1f1b_schedule(uint32_t rank_count, uint32_t micro_batch_count);

// 1F1B with v stages on each rank: the bubble is (p - 1) / (v * m + p - 1), and each micro-batch
// crosses v times as many borders of ranks. The number of micro-batches is a multiple of that of
// the ranks. With v = 1 it is 1F1B. (Narayanan et al. 2021, Megatron-LM.)
PipelineSchedule make_interleaved_schedule(uint32_t rank_count, uint32_t micro_batch_count,
                                           uint32_t stages_per_rank);

// 1F1B whose backward is cut in halves, and whose halves for the weights fill the gaps. If the
// forward and the two halves take 1 each and m >= p, a step takes 3 * m + p - 1, where 1F1B takes
// 3 * (m + p - 1). At most p micro-batches are alive on every rank. (Qi et al. 2023, ZB-H1.)
PipelineSchedule make_zero_bubble_schedule(uint32_t rank_count, uint32_t micro_batch_count);

// Returns the schedule of the name "gpipe", "1f1b", "interleaved" or "zb". `stages_per_rank` is 1
// for all but "interleaved".
PipelineSchedule make_pipeline_schedule(const std::string& name, uint32_t rank_count,
                                        uint32_t micro_batch_count, uint32_t stages_per_rank = 1);

// ---- Checks ------------------------------------------------------------------------------------

// Returns "" if every micro-batch runs forward and backward exactly once through every stage, on
// the rank of the stage, and if no rank waits for ever. Otherwise it returns a sentence that names
// the first problem: its rank, the number of the action from 0, and the action.
std::string problem_of(const PipelineSchedule& schedule);

// Throws Error with the sentence of problem_of(), if there is one.
void check_schedule(const PipelineSchedule& schedule);

// Returns text like "forward of micro-batch 2 at stage 1".
std::string describe(const PipelineAction& action);

// Returns a line for each rank, with actions such as F2.1 B2.1 I2.1 W2.1: the kind of work, the
// micro-batch and the stage.
std::string describe(const PipelineSchedule& schedule);

// ---- Costs -------------------------------------------------------------------------------------

// How long actions take, in any unit. All are finite and at least 0.
struct PipelineDurations {
  double forward = 1;         // Of a micro-batch at one stage.
  double backward_input = 1;  // A kBackward takes the sum of both halves.
  double backward_weight = 1;
  double communication = 0;  // From the end of an action to its result on another rank. Ranks
                             // compute meanwhile.

  double of(PipelineWork work) const;
};

struct PipelineInterval {
  double begin, end;
};

struct PipelineTimeline {
  std::vector<std::vector<PipelineInterval>> ranks;  // Of each action of the schedule.
  double step_time = 0;                              // From 0 to the end of the last action.

  // Returns the share of the time of all ranks in which they do no action: 0 to 1, and 0 for a step
  // that takes no time.
  double bubble_share() const;
};

// Returns when each action starts and ends, if all start as early as they can. Throws Error for a
// schedule with a problem.
PipelineTimeline timeline_of(const PipelineSchedule& schedule, const PipelineDurations& durations);

// Returns for each rank how many micro-batches it holds activations of at most, counted for each of
// its stages: from the start of the forward to the end of the backward, or of its half for the
// weights. With v stages on a rank, each of these takes 1 / v of what a micro-batch takes there.
std::vector<uint32_t> largest_alive_counts(const PipelineSchedule& schedule);

}  // namespace bp::distributed
