// What one rank does in a step of a pipeline: its actions, and the transfers between them.
//
// All ranks derive one order of all actions and transfers from the schedule: that of the times at
// which they happen if all actions take as long. A transfer comes right behind the action that
// made its tensor. Each rank submits its transfers in this order, and those of one kind between two
// of its actions together. This cannot deadlock, even if a send ends only when its receive has
// begun: the first item in the order that has not ended waits only for items before it, on both of
// its ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "backplane/runtime/distributed/pipeline_schedule.hpp"

namespace bp::distributed {

// What a stage gives to its neighbour: the result of its forward to the stage behind it, or the
// gradient of its input to the stage before it.
struct PipelineTransfer {
  bool is_gradient;
  uint32_t micro_batch;
  uint32_t to_stage;

  friend auto operator<=>(const PipelineTransfer&, const PipelineTransfer&) = default;
};

struct PipelineProgramStep {
  struct Call {
    PipelineTransfer transfer;
    bool is_send;
    uint32_t peer;  // The other rank.
  };
  std::vector<Call> calls;               // Before the action.
  std::optional<PipelineAction> action;  // The last step may have none.
};
using PipelineProgram = std::vector<PipelineProgramStep>;

// Returns what `action` gives to another stage; nothing at the ends of the chain, and for gradients
// of weights.
std::optional<PipelineTransfer> result_of(const PipelineAction& action, uint32_t stage_count);

// Returns what `action` takes from another stage; nothing for the same.
std::optional<PipelineTransfer> input_of(const PipelineAction& action, uint32_t stage_count);

// Returns the program of a rank. Without `has_backward` it has the forwards alone. The schedule has
// no problem.
PipelineProgram make_program(const PipelineSchedule& schedule, uint32_t rank, bool has_backward);

}  // namespace bp::distributed
