// group_norm, instance_norm, batch_norm_inference and batch_norm_training: frames and claims
// (norm.cu). The rows are the groups of each sample, or the channels over all samples.
#include "backends/cuda/kernels/channel_norm.cuh"
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/norm.cuh"

namespace bp::cuda {
namespace {

// How x is split: the axes of samples, groups and channels, in an order that has the axes of rows
// first. The places follow.
struct ChannelSplit {
  const bp_tensor& x;
  int64_t groups;  // 0 if the rows are channels over all samples.

  bool has_groups() const { return groups != 0; }
  int64_t width() const { return x.shape[1] / groups; }  // The channels of a group.
  uint32_t row_ndim() const { return has_groups() ? 2 : 1; }
  uint32_t ndim() const { return has_groups() ? x.ndim + 1 : x.ndim; }
  uint32_t element_axes() const {
    return last_axes(ndim(), static_cast<int32_t>(ndim() - row_ndim()));
  }

  // Calls fn(tensor) for a view with the strides of samples, channels, and of `places`, or 0.
  template <typename Fn>
  auto with_view(const bp_tensor& tensor, int64_t sample_stride, int64_t channel_stride,
                 const int64_t* places, const Fn& fn) const {
    ChannelView view(tensor, ndim());
    if (has_groups()) {
      view.set(0, x.shape[0], sample_stride)
          .set(1, groups, width() * channel_stride)
          .set(2, width(), channel_stride);
    } else {
      view.set(0, x.shape[1], channel_stride).set(1, x.shape[0], sample_stride);
    }
    const uint32_t first = ndim() - (x.ndim - 2);
    for (uint32_t i = 2; i < x.ndim; ++i) {
      view.set(first + i - 2, x.shape[i], places == nullptr ? 0 : places[i]);
    }
    return fn(view.get());
  }

  // Returns x or y as rows.
  RowTensor rows(const bp_tensor& tensor) const {
    return with_view(tensor, tensor.strides[0], tensor.strides[1], tensor.strides,
                     [&](const bp_tensor& view) { return row_tensor(view, element_axes()); });
  }
  // Returns gamma or beta as rows.
  OptionalRows weights(const bp_tensor* tensor) const {
    if (tensor == nullptr) return {};
    return with_view(*tensor, 0, tensor->strides[0], nullptr,
                     [&](const bp_tensor& view) { return OptionalRows(&view, element_axes()); });
  }
  RowExtents extents() const {
    return with_view(x, 0, 0, nullptr,
                     [&](const bp_tensor& view) { return row_extents(view, element_axes()); });
  }
};

ChannelSplit split_of(const bp_group_norm_args& args) { return {*args.x, args.groups}; }
ChannelSplit split_of(const bp_instance_norm_args& args) { return {*args.x, args.x->shape[1]}; }
template <typename Args>
ChannelSplit split_of(const Args& args) {
  return {*args.x, 0};
}

template <typename Args>
NormPlan plan_of(const Args& args) {
  const ChannelSplit split = split_of(args);
  const RowExtents extents = split.extents();
  NormPlan plan;
  plan.x = split.rows(*args.x);
  plan.y = split.rows(*args.y);
  plan.gamma = split.weights(args.gamma);
  plan.beta = split.weights(args.beta);
  plan.mean = {args.mean, 0};
  if constexpr (requires { args.rstd; }) {
    plan.rstd = {args.rstd, 0};
  } else {
    plan.variance = {args.variance, 0};
  }
  plan.eps = args.eps;
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  const int64_t lanes = 16 / dtype_size_bytes(args.x->dtype);
  plan.repeats_weights = places_of(*args.x) % lanes == 0;
  plan.has_vectors =
      plan.x.has_vectors && plan.y.has_vectors &&
      (plan.repeats_weights || (plan.gamma.allows_vectors() && plan.beta.allows_vectors()));
  return plan;
}

template <typename Args>
bp_status launch_norm(const Args& args, Launch& launch) {
  const RowExtents extents = split_of(args).extents();
  return submit_norm(plan_of(args), extents, args.x->dtype, true, launch);
}

bp_status launch_given_norm(const bp_batch_norm_inference_args& args, Launch& launch) {
  return submit_given_norm(plan_of(args), split_of(args).extents(), args.x->dtype, launch);
}

template <typename Args>
uint64_t norm_workspace(const Args& args, const Env&) {
  const ChannelSplit split = split_of(args);
  return row_parts_bytes(split.rows(*args.x), split.extents(), norm_reductions(true));
}

template <typename Args>
bp_reason norm_supports(const Args& args) {
  const ChannelSplit split = split_of(args);
  return split.with_view(*args.x, 0, 0, nullptr, [&](const bp_tensor& view) {
    return too_many_rows(view, split.element_axes());
  });
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

constinit const bp_kernel kGroupNorm =
    make_kernel<bp_group_norm_args, launch_norm<bp_group_norm_args>,
                norm_supports<bp_group_norm_args>, norm_workspace<bp_group_norm_args>>(
        kernel_row("group_norm", BP_OP_GROUP_NORM, kFloatDtypes, kFlags));
constinit const bp_kernel kInstanceNorm =
    make_kernel<bp_instance_norm_args, launch_norm<bp_instance_norm_args>,
                norm_supports<bp_instance_norm_args>, norm_workspace<bp_instance_norm_args>>(
        kernel_row("instance_norm", BP_OP_INSTANCE_NORM, kFloatDtypes, kFlags));
constinit const bp_kernel kBatchNormTraining =
    make_kernel<bp_batch_norm_training_args, launch_norm<bp_batch_norm_training_args>,
                norm_supports<bp_batch_norm_training_args>,
                norm_workspace<bp_batch_norm_training_args>>(
        kernel_row("batch_norm_training", BP_OP_BATCH_NORM_TRAINING, kFloatDtypes, kFlags));
constinit const bp_kernel kBatchNormInference =
    make_kernel<bp_batch_norm_inference_args, launch_given_norm,
                norm_supports<bp_batch_norm_inference_args>>(
        kernel_row("batch_norm_inference", BP_OP_BATCH_NORM_INFERENCE, kFloatDtypes, kFlags));

}  // namespace bp::cuda
