// The gradients of group_norm, instance_norm and batch_norm_training. A plane is a channel of one
// sample, or of all samples, and a unit is the planes that share a mean. With u = (x - mean) * rstd
// and h = grad_y * gamma, three kernels compute
//
//   the sums of grad_y, grad_y * u, h and h * u in each plane,
//   the gradients of beta and gamma, and the means of h and of h * u in each unit, from these sums,
//   grad_x = rstd * (h - mean(h) - u * mean(h * u)).
//
// channel_norm_backward.cu has the frames, and channel_norm_planes.cu the kernels.
#pragma once

#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

struct PlanesPlan {
  RowTensor grad_y, x, grad_x;    // The rows are planes.
  RowTensor mean, spread, means;  // By plane. `means` has a pair for each unit.
  OptionalRows gamma;             // By plane.
  void* sums = nullptr;           // (planes, 2), pairs in the computing type: of grad_y, of h.
  bool has_rstd = false;          // Else `spread` is a variance.
  double eps = 0;
  uint32_t rows = 0, count = 0;
  bool has_vectors = false;
  RowCut cut;
};

// Row r is the sum over the planes r * row_step, r * row_step + plane_step and so on.
struct JoinPlan {
  const void* sums = nullptr;
  bool takes_h = false;                // Else the sums of grad_y.
  void* means = nullptr;               // The results divided by `divisor`, or
  OptionalRows grad_gamma, grad_beta;  // gradients, by channel.
  uint32_t rows = 0, count = 0, row_step = 1, plane_step = 1;
  double divisor = 1;
};

// Planes of fewer places are joined over all samples if their mean is.
constexpr int64_t kLeastPlaces = 16;

// The reductions of submit_plane_sums() (run_rows).
constexpr uint32_t kPlaneReductions = 2;

// Submit one of the kernels. A plan without rows submits nothing.
bp_status submit_plane_sums(const PlanesPlan& plan, const RowExtents& extents, bp_dtype dtype,
                            Launch& launch);
bp_status submit_join(const JoinPlan& plan, bp_dtype dtype, Launch& launch);
bp_status submit_plane_write(const PlanesPlan& plan, const RowExtents& extents, bp_dtype dtype,
                             Launch& launch);

}  // namespace bp::cuda
