// Schedules of a training step of a GPT-like model: data-parallel with buckets (DDP), sharded
// (FSDP stages 1 to 3), tensor-parallel, pipeline-parallel, and any product of them.
//
//   Forward     A layer has two halves, attention and MLP. With tensor parallelism an all-reduce
//               follows each half, and the next half waits for it. With sequence parallelism it is
//               a reduce-scatter and an all-gather.
//   Backward    With tensor parallelism a half is cut again: the all-reduce of the input's gradient
//               runs beside the gradients of the weights.
//   DDP         A bucket is reduced as soon as its last gradient is there, in the last backward of
//               a step.
//   FSDP        A layer is a unit. Stages 1 and 2 gather all units once, at the begin of a step.
//               Stage 3 gathers each unit before its forward and its backward, `prefetch` units
//               ahead. Stage 1 reduces in the last backward of a step, stages 2 and 3 in each one.
//               Gathers and reductions have streams and groups of their own.
//   Pipeline    See backplane/runtime/distributed/pipeline_schedule.hpp. Sends and receives of each
//               direction have a stream each, so computing never waits for a send.
//
// Not in it: the reductions of the norm for gradient clipping, of the loss, and of the host's time.
#pragma once

#include "runtime/simulate/model.hpp"
#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {

enum class Ranks {
  kRepresentatives,  // One rank of each pipeline rank: exact without stragglers, on networks that
                     // treat the ranks alike.
  kAll,
};

// Returns the schedule of a step. Throws bp::Error as check() does, and if the network has fewer
// ranks than the layout.
Schedule make_step(const Job& job, const Layout& layout, const Network& network, Ranks ranks);

// Returns kAll for networks with stragglers, else kRepresentatives.
Ranks ranks_for(const Network& network);

}  // namespace bp::simulate
