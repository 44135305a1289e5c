// group_norm, instance_norm, batch_norm_inference and batch_norm_training (channel_norm_rows.cpp)
#include "backends/host_kernels/channel_norm.hpp"

#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

ChannelShape::ChannelShape(const bp_tensor& x, Statistics its_statistics, int64_t its_groups)
    : statistics(its_statistics),
      dtype(x.dtype),
      samples(x.shape[0]),
      channels(x.shape[1]),
      places(element_count(x.ndim - 2, x.shape + 2)),
      groups(its_groups) {}

uint64_t ChannelNorm::reserve() {
  uint64_t size_bytes = 0;
  for (NormOperand* operand : {&x, &y, &gamma, &beta, &given_mean, &given_variance}) {
    operand->reserve(size_bytes);
  }
  const uint64_t weight_size_bytes = shape.dtype == BP_F64 ? sizeof(double) : sizeof(float);
  const auto count = static_cast<uint64_t>(shape.weight_count());
  weights_offset = reserve_bytes(3 * count * weight_size_bytes, size_bytes);
  return size_bytes;
}

bp_status ChannelNorm::submit(Launch& launch) {
  reserve();
  return launch.submit([norm = *this, workspace = launch.workspace(),
                        thread_count = launch.thread_count()]() mutable {
    const auto first = [&](NormOperand& operand) {
      return operand.rows(workspace).at<const std::byte>(0);
    };
    const ChannelNormRows rows = {norm.shape,
                                  norm.eps,
                                  norm.x.rows(workspace),
                                  norm.y.rows(workspace),
                                  first(norm.gamma),
                                  first(norm.beta),
                                  first(norm.given_mean),
                                  first(norm.given_variance),
                                  norm.mean.rows(workspace),
                                  norm.spread.rows(workspace),
                                  norm.mean.is_given(),
                                  norm.spread.is_given(),
                                  workspace + norm.weights_offset};
    for (const NormOperand* operand :
         {&norm.x, &norm.gamma, &norm.beta, &norm.given_mean, &norm.given_variance}) {
      operand->fetch(thread_count);
    }
    run_channel_norm(rows, thread_count);
    norm.y.store(thread_count);
  });
}

namespace {

template <typename Args>
ChannelNorm norm_with(const Args& args, const ChannelShape& shape) {
  ChannelNorm norm(shape, args.eps);
  norm.x = {args.x, 1};
  norm.y = {args.y, 1};
  norm.gamma = {args.gamma, 0};
  norm.beta = {args.beta, 0};
  return norm;
}

ChannelNorm norm_of(const bp_group_norm_args& args) {
  ChannelNorm norm = norm_with(args, {*args.x, Statistics::kOfGroup, args.groups});
  norm.mean = {args.mean, 2};
  norm.spread = {args.rstd, 2};
  return norm;
}

ChannelNorm norm_of(const bp_instance_norm_args& args) {
  ChannelNorm norm = norm_with(args, {*args.x, Statistics::kOfGroup, args.x->shape[1]});
  norm.mean = {args.mean, 2};
  norm.spread = {args.rstd, 2};
  return norm;
}

ChannelNorm norm_of(const bp_batch_norm_training_args& args) {
  ChannelNorm norm = norm_with(args, {*args.x, Statistics::kOfChannel});
  norm.mean = {args.mean, 1};
  norm.spread = {args.variance, 1};
  return norm;
}

ChannelNorm norm_of(const bp_batch_norm_inference_args& args) {
  ChannelNorm norm = norm_with(args, {*args.x, Statistics::kGiven});
  norm.given_mean = {args.mean, 0};
  norm.given_variance = {args.variance, 0};
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

extern constinit const bp_kernel kGroupNorm =
    norm_kernel<bp_group_norm_args>("group_norm", BP_OP_GROUP_NORM);
extern constinit const bp_kernel kInstanceNorm =
    norm_kernel<bp_instance_norm_args>("instance_norm", BP_OP_INSTANCE_NORM);
extern constinit const bp_kernel kBatchNormInference =
    norm_kernel<bp_batch_norm_inference_args>("batch_norm_inference", BP_OP_BATCH_NORM_INFERENCE);
extern constinit const bp_kernel kBatchNormTraining =
    norm_kernel<bp_batch_norm_training_args>("batch_norm_training", BP_OP_BATCH_NORM_TRAINING);

}  // namespace bp::kernels
