#include "backplane/runtime/distributed/pipeline_schedule.hpp"

#include <algorithm>

#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

using Actions = std::vector<PipelineAction>;
using enum PipelineWork;

[[noreturn]] void fail(const std::string& text) { throw Error(BP_INVALID_ARGUMENT, text); }

void check_counts(const char* call, uint32_t rank_count, uint32_t micro_batch_count,
                  uint32_t stages_per_rank = 1) {
  if (rank_count > 0 && micro_batch_count > 0 && stages_per_rank > 0) return;
  fail(std::string(call) + ": there are " + std::to_string(rank_count) + " ranks, " +
       std::to_string(micro_batch_count) + " micro-batches and " + std::to_string(stages_per_rank) +
       " stages on each rank; allowed: at least 1 of each");
}

PipelineSchedule make_empty(const char* name, uint32_t rank_count, uint32_t micro_batch_count,
                            uint32_t stages_per_rank = 1) {
  PipelineSchedule schedule;
  schedule.name = name;
  schedule.micro_batch_count = micro_batch_count;
  for (uint32_t stage = 0; stage < rank_count * stages_per_rank; ++stage) {
    schedule.stage_ranks.push_back(stage % rank_count);
  }
  schedule.ranks.resize(rank_count);
  return schedule;
}

// The place of number `index` of the forwards of a rank, or of its backwards with the stages in
// reverse: p micro-batches go through the first stage of the rank, then through its next one.
struct Place {
  uint32_t micro_batch, own_stage;
};
Place place_of(uint32_t index, uint32_t rank_count, uint32_t stages_per_rank) {
  const uint32_t round = index / (rank_count * stages_per_rank);
  const uint32_t in_round = index % (rank_count * stages_per_rank);
  return {round * rank_count + in_round % rank_count, in_round / rank_count};
}

}  // namespace

const char* name_of(PipelineWork work) {
  constexpr const char* kNames[] = {"forward", "backward", "backward of the input",
                                    "backward of the weights"};
  return kNames[static_cast<size_t>(work)];
}

std::vector<uint32_t> PipelineSchedule::stages_of(uint32_t rank) const {
  std::vector<uint32_t> stages;
  for (uint32_t stage = 0; stage < stage_count(); ++stage) {
    if (stage_ranks[stage] == rank) stages.push_back(stage);
  }
  return stages;
}

PipelineSchedule make_gpipe_schedule(uint32_t rank_count, uint32_t micro_batch_count) {
  check_counts("make_gpipe_schedule", rank_count, micro_batch_count);
  PipelineSchedule schedule = make_empty("gpipe", rank_count, micro_batch_count);
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    for (const PipelineWork work : {kForward, kBackward}) {
      for (uint32_t i = 0; i < micro_batch_count; ++i) {
        schedule.ranks[rank].push_back({work, i, rank});
      }
    }
  }
  return schedule;
}

PipelineSchedule make_1f1b_schedule(uint32_t rank_count, uint32_t micro_batch_count) {
  check_counts("make_1f1b_schedule", rank_count, micro_batch_count);
  PipelineSchedule schedule = make_empty("1f1b", rank_count, micro_batch_count);
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    Actions& actions = schedule.ranks[rank];
    const uint32_t warm_up = std::min(micro_batch_count, rank_count - 1 - rank);
    for (uint32_t i = 0; i < warm_up; ++i) actions.push_back({kForward, i, rank});
    for (uint32_t i = 0; i < micro_batch_count; ++i) {
      if (warm_up + i < micro_batch_count) actions.push_back({kForward, warm_up + i, rank});
      actions.push_back({kBackward, i, rank});
    }
  }
  return schedule;
}

PipelineSchedule make_interleaved_schedule(uint32_t rank_count, uint32_t micro_batch_count,
                                           uint32_t stages_per_rank) {
  check_counts("make_interleaved_schedule", rank_count, micro_batch_count, stages_per_rank);
  if (stages_per_rank == 1) {
    PipelineSchedule schedule = make_1f1b_schedule(rank_count, micro_batch_count);
    schedule.name = "interleaved";
    return schedule;
  }
  if (micro_batch_count % rank_count != 0) {
    fail("make_interleaved_schedule: there are " + std::to_string(micro_batch_count) +
         " micro-batches for " + std::to_string(rank_count) +
         " ranks; allowed: a multiple of their number");
  }
  PipelineSchedule schedule =
      make_empty("interleaved", rank_count, micro_batch_count, stages_per_rank);
  const uint32_t total = micro_batch_count * stages_per_rank;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    Actions& actions = schedule.ranks[rank];
    const auto add = [&](PipelineWork work, uint32_t index) {
      const Place place = place_of(index, rank_count, stages_per_rank);
      const uint32_t own =
          work == kForward ? place.own_stage : stages_per_rank - 1 - place.own_stage;
      actions.push_back({work, place.micro_batch, own * rank_count + rank});
    };
    const uint32_t warm_up =
        std::min(total, 2 * (rank_count - 1 - rank) + (stages_per_rank - 1) * rank_count);
    for (uint32_t i = 0; i < warm_up; ++i) add(kForward, i);
    for (uint32_t i = 0; i < total; ++i) {
      if (warm_up + i < total) add(kForward, warm_up + i);
      add(kBackward, i);
    }
  }
  return schedule;
}

// Rank r does the half for the weights r micro-batches behind that for the input. The gaps behind
// the last forward of a rank are as long as the halves that this keeps back.
PipelineSchedule make_zero_bubble_schedule(uint32_t rank_count, uint32_t micro_batch_count) {
  check_counts("make_zero_bubble_schedule", rank_count, micro_batch_count);
  PipelineSchedule schedule = make_empty("zb", rank_count, micro_batch_count);
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    Actions& actions = schedule.ranks[rank];
    const uint32_t warm_up = std::min(micro_batch_count, rank_count - 1 - rank);
    const uint32_t delay = std::min(micro_batch_count, rank);
    for (uint32_t i = 0; i < warm_up; ++i) actions.push_back({kForward, i, rank});
    for (uint32_t i = 0; i < micro_batch_count; ++i) {
      if (warm_up + i < micro_batch_count) actions.push_back({kForward, warm_up + i, rank});
      actions.push_back({kBackwardInput, i, rank});
      if (i >= delay) actions.push_back({kBackwardWeight, i - delay, rank});
    }
    for (uint32_t i = micro_batch_count - delay; i < micro_batch_count; ++i) {
      actions.push_back({kBackwardWeight, i, rank});
    }
  }
  return schedule;
}

PipelineSchedule make_pipeline_schedule(const std::string& name, uint32_t rank_count,
                                        uint32_t micro_batch_count, uint32_t stages_per_rank) {
  if (name == "interleaved") {
    return make_interleaved_schedule(rank_count, micro_batch_count, stages_per_rank);
  }
  if (name != "gpipe" && name != "1f1b" && name != "zb") {
    fail("make_pipeline_schedule: the name is '" + name +
         "'; allowed: gpipe, 1f1b, interleaved, zb");
  }
  if (stages_per_rank != 1) {
    fail("make_pipeline_schedule: '" + name + "' is asked for " + std::to_string(stages_per_rank) +
         " stages on each rank; allowed: 1, and more for 'interleaved'");
  }
  if (name == "gpipe") return make_gpipe_schedule(rank_count, micro_batch_count);
  if (name == "1f1b") return make_1f1b_schedule(rank_count, micro_batch_count);
  return make_zero_bubble_schedule(rank_count, micro_batch_count);
}

}  // namespace bp::distributed
