// What the kernels of sdpa_backward share: the plan of a call, and the plain kernels, which compute
// every tile, or only those that another kernel leaves to them.
#pragma once

#include "backends/cuda/kernels/sdpa.cuh"

namespace bp::cuda {

struct BackwardPlan {
  Attention a;
  View4 grad_y, y, lse, grad_q, grad_k, grad_v, grad_sinks;
  void* deltas = nullptr;  // (problems, delta_stride) in the computing type.
  int64_t delta_stride = 0;

  // A mark for each tile of kTileSide rows or keys, (problems, tiles): whether the plain kernels
  // compute this part of the gradient. NULL: they compute every tile.
  const uint8_t *grad_q_marks = nullptr, *grad_k_marks = nullptr, *grad_v_marks = nullptr;
};

// Returns the plan of a call, without what lies in the workspace.
BackwardPlan backward_plan_of(const bp_sdpa_backward_args& args);

// Computes the marked tiles of the gradients by the plain kernels. The deltas are known.
bp_status launch_plain_gradients(const BackwardPlan& plan, bp_dtype dtype, Launch& launch);

}  // namespace bp::cuda
