// The gradients of group_norm, instance_norm and batch_norm_training
// (channel_norm_backward_rows.cpp)
#include <algorithm>
#include <array>
#include <utility>

#include "backends/host_kernels/channel_norm.hpp"
#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

uint64_t ChannelNormBackward::reserve() {
  uint64_t size_bytes = 0;
  for (NormOperand* operand : {&grad_y, &x, &gamma, &grad_x, &grad_gamma, &grad_beta}) {
    operand->reserve(size_bytes);
  }
  const auto pairs_size_bytes = [](int64_t count) {
    return static_cast<uint64_t>(count) * 2 * sizeof(double);
  };
  sums_offset = reserve_bytes(pairs_size_bytes(shape.samples * shape.channels), size_bytes);
  means_offset = reserve_bytes(pairs_size_bytes(shape.units()), size_bytes);
  return size_bytes;
}

bp_status ChannelNormBackward::submit(Launch& launch) {
  reserve();
  return launch.submit([norm = *this, workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    const ChannelNormBackwardRows rows = {norm.shape,
                                          norm.eps,
                                          norm.grad_y.rows(workspace),
                                          norm.x.rows(workspace),
                                          norm.grad_x.rows(workspace),
                                          norm.mean.rows(workspace),
                                          norm.spread.rows(workspace),
                                          norm.gamma.rows(workspace).at<std::byte>(0),
                                          norm.grad_gamma.rows(workspace).at<std::byte>(0),
                                          norm.grad_beta.rows(workspace).at<std::byte>(0),
                                          reinterpret_cast<double*>(workspace + norm.sums_offset),
                                          reinterpret_cast<double*>(workspace + norm.means_offset)};
    for (const NormOperand* operand : {&norm.grad_y, &norm.x, &norm.gamma}) {
      operand->fetch(thread_count);
    }
    run_channel_norm_backward(rows, thread_count);
    for (const NormOperand* operand : {&norm.grad_x, &norm.grad_gamma, &norm.grad_beta}) {
      operand->store(thread_count);
    }
  });
}

namespace {

template <typename Args>
ChannelNormBackward norm_with(const Args& args, const ChannelShape& shape) {
  ChannelNormBackward norm(shape, args.eps);
  norm.grad_y = {args.grad_y, 1};
  norm.x = {args.x, 1};
  norm.gamma = {args.gamma, 0};
  norm.grad_x = {args.grad_x, 1};
  norm.grad_gamma = {args.grad_gamma, 0};
  norm.grad_beta = {args.grad_beta, 0};
  return norm;
}

ChannelNormBackward norm_of(const bp_group_norm_backward_args& args) {
  ChannelNormBackward norm = norm_with(args, {*args.x, Statistics::kOfGroup, args.mean->shape[1]});
  norm.mean = {args.mean, 2};
  norm.spread = {args.rstd, 2};
  return norm;
}

// Returns the operand with the channels before the samples, without gaps.
NormOperand by_channel(const bp_tensor& tensor) {
  std::array<int64_t, BP_MAX_RANK> shape{}, strides{};
  std::copy_n(tensor.shape, tensor.ndim, shape.begin());
  std::copy_n(tensor.strides, tensor.ndim, strides.begin());
  std::swap(shape[0], shape[1]);
  std::swap(strides[0], strides[1]);
  bp_tensor swapped = tensor;
  swapped.shape = shape.data();
  swapped.strides = strides.data();
  return {&swapped, 0};
}

ChannelNormBackward norm_of(const bp_batch_norm_training_backward_args& args) {
  ChannelNormBackward norm = norm_with(args, {*args.x, Statistics::kOfChannel});
  norm.mean = {args.mean, 1};
  norm.spread = {args.variance, 1};
  if (norm.shape.are_channels_rows()) return norm;
  // Planes of few places are copied to one long plane for each channel.
  norm.shape.places *= std::exchange(norm.shape.samples, 1);
  norm.grad_y = by_channel(*args.grad_y);
  norm.x = by_channel(*args.x);
  norm.grad_x = by_channel(*args.grad_x);
  return norm;
}

template <typename Args>
uint64_t norm_workspace(const Args& args, const Env&) {
  return norm_of(args).reserve();
}

template <typename Args>
bp_status norm_launch(const Args& args, Launch& launch) {
  return norm_of(args).submit(launch);
}

template <typename Args>
constexpr bp_kernel norm_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, norm_launch<Args>, nullptr, norm_workspace<Args>>(
      kernel_row(name, op, kFloatDtypes, BP_KERNEL_IN_PLACE));
}

}  // namespace

extern constinit const bp_kernel kGroupNormBackward =
    norm_kernel<bp_group_norm_backward_args>("group_norm_backward", BP_OP_GROUP_NORM_BACKWARD);
extern constinit const bp_kernel kBatchNormTrainingBackward =
    norm_kernel<bp_batch_norm_training_backward_args>("batch_norm_training_backward",
                                                      BP_OP_BATCH_NORM_TRAINING_BACKWARD);

}  // namespace bp::kernels
