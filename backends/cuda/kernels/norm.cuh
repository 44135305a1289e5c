// layer_norm and rms_norm:  y = (x - mean) * rstd * gamma + beta  over the last axes, where
// rms_norm has no mean and no beta; and their gradients. The norms of channels (channel_norm.cu)
// are rows of the same kind, where each row has its own part of gamma and beta.
#pragma once

#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

struct NormPlan {
  RowTensor x, y;
  OptionalRows gamma, beta, mean, rstd, variance;
  bool repeats_weights = false;  // A vector of elements has one weight.
  double eps = 0;
  uint32_t rows = 0, count = 0;
  bool has_vectors = false;
  RowCut cut;
};

struct NormBackwardPlan {
  RowTensor grad_y, x, grad_x, rstd;
  OptionalRows gamma, mean;
  uint32_t rows = 0, count = 0;
  bool has_vectors = false;
  RowCut cut;
};

// The sums over rows of grad_gamma and grad_beta.
struct NormSumsPlan {
  RowTensor grad_y, x, rstd;
  OptionalRows mean, grad_gamma, grad_beta;
  void* parts = nullptr;  // (chunks, 2, count) in the computing type.
  uint32_t rows = 0, count = 0, chunk = 0, chunks = 0;
};

// How many reductions of a row the kernels have (run_rows).
constexpr uint32_t norm_reductions(bool is_centered) { return is_centered ? 2 : 1; }
constexpr uint32_t kNormBackwardReductions = 1;

// Submit a norm, and the gradient of x. `is_centered` says that it is layer_norm. norm.cu launches
// the kernels.
bp_status submit_norm(NormPlan plan, const RowExtents& extents, bp_dtype dtype, bool is_centered,
                      Launch& launch);
// Submits a norm by the mean and the variance of the plan, which are given.
bp_status submit_given_norm(NormPlan plan, const RowExtents& extents, bp_dtype dtype,
                            Launch& launch);
bp_status submit_norm_backward(NormBackwardPlan plan, const RowExtents& extents, bp_dtype dtype,
                               bool is_centered, Launch& launch);

// Submits the sums over rows, if there are any. norm_sums.cu launches the kernels.
bp_status submit_norm_sums(NormSumsPlan sums, const RowExtents& extents, bp_dtype dtype,
                           bool is_centered, Launch& launch);
uint64_t norm_sums_size_bytes(const RowExtents& extents, bp_dtype dtype);

}  // namespace bp::cuda
