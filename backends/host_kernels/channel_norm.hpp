// The parts of group_norm, batch_norm_inference and batch_norm_training.
//
// x is (samples, channels, places), where all axes behind the channels are places. The channels and
// places of a sample lie without gaps, or are copied there.
//
//   y = (x - center) * factor + shift
//
// The center and the factor come from the mean and the variance: those of a group of channels in a
// sample, those of a channel over all samples, or given ones.
#pragma once

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

  Statistics statistics;
  bp_dtype dtype;
  int64_t samples, channels, places, groups;
};

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

void run_channel_norm(const ChannelNormRows& norm, int thread_count);

}  // namespace bp::kernels
