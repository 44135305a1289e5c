// The host side of norm.comp, for the kernels of norms.
#pragma once

#include <cstdint>

#include "backends/vulkan/kernels/rows.hpp"

namespace bp::vulkan {

enum NormOp : uint32_t { kNormForward = 0, kNormBackward = 1, kNormColumns = 2, kNormGiven = 3 };

struct NormRecord {
  uint64_t y, x, grad_y, gamma, beta, mean, rstd, variance;
  uint64_t gamma_sums, beta_sums;
  uint64_t row_count, row_size;
  uint32_t part_count, part_size;
  float eps;
  uint32_t row_extents[BP_MAX_RANK];
  int64_t row_y[BP_MAX_RANK], row_x[BP_MAX_RANK], row_grad_y[BP_MAX_RANK], row_mean[BP_MAX_RANK],
      row_rstd[BP_MAX_RANK], row_variance[BP_MAX_RANK], row_gamma[BP_MAX_RANK],
      row_beta[BP_MAX_RANK];
  uint32_t inner_extents[BP_MAX_RANK];
  int64_t inner_y[BP_MAX_RANK], inner_x[BP_MAX_RANK], inner_grad_y[BP_MAX_RANK],
      inner_gamma[BP_MAX_RANK], inner_beta[BP_MAX_RANK];
};

// What a dispatch has besides its record.
struct NormPass {
  NormOp op;
  bp_dtype dtype;
  bool is_layer;  // Else it is an RMS norm.
  uint32_t row_rank, inner_rank;
  uint32_t lanes;  // The invocations of a row.
  uint64_t rows;   // What such lanes share: rows, or columns of parts.
};

// An invocation walks its part of a row three times.
constexpr int64_t kMostNormTrips = 20000;

// Submits the pass; with bound ranges, by bound buffers.
bp_status submit_norm(Launch& launch, const NormPass& pass, const NormRecord& record,
                      const Touched& touched);

// Returns why rows like these do not fit, or NULL.
bp_reason norm_reason(int64_t row_count, int64_t row_size);

}  // namespace bp::vulkan
