// The parts of group_norm, instance_norm, batch_norm_inference and batch_norm_training, and of
// their gradients.
//
// x is (samples, channels, places), where all axes behind the channels are places. The channels and
// places of a sample lie without gaps, or are copied there.
//
//   y = (x - center) * factor + shift
//
// The center and the factor come from the mean and the variance: those of a group of channels in a
// sample, those of a channel over all samples, or given ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/host_kernels/norm.hpp"

namespace bp::kernels {

enum class Statistics { kOfGroup, kOfChannel, kGiven };

struct ChannelShape {
  ChannelShape(const bp_tensor& x, Statistics its_statistics, int64_t its_groups = 1);

  // A channel of fewer places, which may be less than a vector, is no row of its own. Its weights
  // are then repeated for each place, so that all channels of a sample are one row.
  static constexpr int64_t kLeastPlaces = 16;
  bool are_channels_rows() const { return places >= kLeastPlaces; }
  // The number of weights of a channel, and of all channels.
  int64_t width() const { return are_channels_rows() ? 1 : places; }
  int64_t weight_count() const { return channels * width(); }
  // The number of means.
  int64_t units() const { return statistics == Statistics::kOfGroup ? samples * groups : channels; }

  Statistics statistics;
  bp_dtype dtype;
  int64_t samples, channels, places, groups;
};

// Returns how many planes or groups of so many elements are worth a thread.
inline int64_t channel_norm_grain(int64_t elements) {
  constexpr int64_t kGrainElements = 8192;
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements));
}

// A call with addresses, as the loops use it. The address of an absent operand is NULL.
struct ChannelNormRows {
  ChannelShape shape;
  double eps;
  RowPlaces x, y;  // By sample.
  const std::byte *gamma, *beta, *given_mean, *given_variance;
  // The results, by group of each sample or by channel. `spread` is rstd or the variance.
  RowPlaces mean, spread;
  bool has_mean, has_spread;
  std::byte* weights;  // (3, weight_count) in the computing type: centers, factors, shifts.
};

struct ChannelNorm {
  ChannelNorm(const ChannelShape& its_shape, double its_eps) : shape(its_shape), eps(its_eps) {}

  // Reserves the workspace, and returns its size.
  uint64_t reserve();
  bp_status submit(Launch& launch);

  ChannelShape shape;
  double eps;
  NormOperand x, y, gamma, beta, given_mean, given_variance, mean, spread;
  uint64_t weights_offset = 0;
};

// The gradients, with addresses. A plane is the places of a channel in a sample. The planes that
// share a mean are a unit: those of a group in a sample, or those of a channel.
struct ChannelNormBackwardRows {
  ChannelShape shape;
  double eps;
  RowPlaces grad_y, x, grad_x;  // By sample.
  RowPlaces mean, spread;       // By unit. `spread` is rstd, or the variance of a channel.
  const std::byte* gamma;
  std::byte *grad_gamma, *grad_beta;
  double* sums;   // (samples, channels, 2): of grad_y and of grad_y * u in each plane.
  double* means;  // (units, 2): of h and of h * u in each unit.
};

struct ChannelNormBackward {
  ChannelNormBackward(const ChannelShape& its_shape, double its_eps)
      : shape(its_shape), eps(its_eps) {}

  // Reserves the workspace, and returns its size.
  uint64_t reserve();
  bp_status submit(Launch& launch);

  ChannelShape shape;
  double eps;
  NormOperand grad_y, x, gamma, mean, spread, grad_x, grad_gamma, grad_beta;
  uint64_t sums_offset = 0, means_offset = 0;
};

void run_channel_norm(const ChannelNormRows& norm, int thread_count);
void run_channel_norm_backward(const ChannelNormBackwardRows& norm, int thread_count);

}  // namespace bp::kernels
