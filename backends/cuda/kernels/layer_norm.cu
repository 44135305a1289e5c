// layer_norm and rms_norm with their gradients: frames and claims (norm.cu).
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/norm.cuh"

namespace bp::cuda {
namespace {

// Reads a frame with x and normalized_ndim.
template <typename Args>
uint32_t element_axes(const Args& args) {
  return last_axes(args.x->ndim, args.normalized_ndim);
}

// Returns a tensor as one row, for gamma, beta and their gradients.
OptionalRows one_row(const bp_tensor* tensor) {
  return {tensor, tensor == nullptr ? 0 : (1u << tensor->ndim) - 1};
}

template <typename Args>
NormPlan forward_plan(const Args& args, const RowExtents& extents) {
  const uint32_t axes = element_axes(args);
  NormPlan plan;
  plan.x = row_tensor(*args.x, axes);
  plan.y = row_tensor(*args.y, axes);
  plan.gamma = one_row(args.gamma);
  plan.rstd = {args.rstd, 0};
  plan.eps = args.eps;
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  return plan;
}

bp_status layer_norm_launch(const bp_layer_norm_args& args, Launch& launch) {
  const RowExtents extents = row_extents(*args.x, element_axes(args));
  NormPlan plan = forward_plan(args, extents);
  plan.beta = one_row(args.beta);
  plan.mean = {args.mean, 0};
  plan.has_vectors = plan.x.has_vectors && plan.y.has_vectors && plan.gamma.allows_vectors() &&
                     plan.beta.allows_vectors();
  return submit_norm(plan, extents, args.x->dtype, true, launch);
}

bp_status rms_norm_launch(const bp_rms_norm_args& args, Launch& launch) {
  const RowExtents extents = row_extents(*args.x, element_axes(args));
  NormPlan plan = forward_plan(args, extents);
  plan.has_vectors = plan.x.has_vectors && plan.y.has_vectors && plan.gamma.allows_vectors();
  return submit_norm(plan, extents, args.x->dtype, false, launch);
}

template <typename Args>
NormBackwardPlan backward_plan(const Args& args, const RowExtents& extents) {
  const uint32_t axes = element_axes(args);
  NormBackwardPlan plan;
  plan.grad_y = row_tensor(*args.grad_y, axes);
  plan.x = row_tensor(*args.x, axes);
  plan.grad_x = row_tensor(*args.grad_x, axes);
  plan.rstd = rows_only(*args.rstd);
  plan.gamma = one_row(args.gamma);
  plan.rows = static_cast<uint32_t>(extents.rows);
  plan.count = static_cast<uint32_t>(extents.count);
  plan.has_vectors = plan.grad_y.has_vectors && plan.x.has_vectors && plan.grad_x.has_vectors &&
                     plan.gamma.allows_vectors();
  return plan;
}

NormSumsPlan sums_plan(const NormBackwardPlan& plan, const bp_tensor* grad_gamma) {
  NormSumsPlan sums;
  sums.grad_y = plan.grad_y;
  sums.x = plan.x;
  sums.rstd = plan.rstd;
  sums.mean = plan.mean;
  sums.grad_gamma = one_row(grad_gamma);
  sums.rows = plan.rows;
  sums.count = plan.count;
  return sums;
}

// The sums are first, since grad_x may be grad_y or x. Both use all of the workspace.
bp_status submit_backward(const NormBackwardPlan& plan, const NormSumsPlan& sums,
                          const RowExtents& extents, bp_dtype dtype, bool is_centered,
                          Launch& launch) {
  const bp_status status = submit_norm_sums(sums, extents, dtype, is_centered, launch);
  if (status != BP_OK) return status;
  return submit_norm_backward(plan, extents, dtype, is_centered, launch);
}

bp_status layer_norm_backward_launch(const bp_layer_norm_backward_args& args, Launch& launch) {
  const RowExtents extents = row_extents(*args.x, element_axes(args));
  NormBackwardPlan plan = backward_plan(args, extents);
  plan.mean = {args.mean, 0};
  NormSumsPlan sums = sums_plan(plan, args.grad_gamma);
  sums.grad_beta = one_row(args.grad_beta);
  return submit_backward(plan, sums, extents, args.x->dtype, true, launch);
}

bp_status rms_norm_backward_launch(const bp_rms_norm_backward_args& args, Launch& launch) {
  const RowExtents extents = row_extents(*args.x, element_axes(args));
  const NormBackwardPlan plan = backward_plan(args, extents);
  return submit_backward(plan, sums_plan(plan, args.grad_gamma), extents, args.x->dtype, false,
                         launch);
}

template <typename Args, bool kIsCentered>
uint64_t forward_workspace(const Args& args, const Env&) {
  const uint32_t axes = element_axes(args);
  return row_parts_bytes(row_tensor(*args.x, axes), row_extents(*args.x, axes),
                         norm_reductions(kIsCentered));
}

template <typename Args>
uint64_t backward_workspace(const Args& args, const Env&) {
  const uint32_t axes = element_axes(args);
  const RowExtents extents = row_extents(*args.x, axes);
  return std::max(norm_sums_size_bytes(extents, args.x->dtype),
                  row_parts_bytes(row_tensor(*args.x, axes), extents, kNormBackwardReductions));
}

template <typename Args>
bp_reason supports(const Args& args) {
  return too_many_rows(*args.x, element_axes(args));
}

constexpr auto kFlags = BP_KERNEL_IN_PLACE;

}  // namespace

constinit const bp_kernel kLayerNorm =
    make_kernel<bp_layer_norm_args, layer_norm_launch, supports<bp_layer_norm_args>,
                forward_workspace<bp_layer_norm_args, true>>(
        kernel_row("layer_norm", BP_OP_LAYER_NORM, kFloatDtypes, kFlags));
constinit const bp_kernel kRmsNorm =
    make_kernel<bp_rms_norm_args, rms_norm_launch, supports<bp_rms_norm_args>,
                forward_workspace<bp_rms_norm_args, false>>(
        kernel_row("rms_norm", BP_OP_RMS_NORM, kFloatDtypes, kFlags));
constinit const bp_kernel kLayerNormBackward =
    make_kernel<bp_layer_norm_backward_args, layer_norm_backward_launch,
                supports<bp_layer_norm_backward_args>,
                backward_workspace<bp_layer_norm_backward_args>>(
        kernel_row("layer_norm_backward", BP_OP_LAYER_NORM_BACKWARD, kFloatDtypes, kFlags));
constinit const bp_kernel kRmsNormBackward =
    make_kernel<bp_rms_norm_backward_args, rms_norm_backward_launch,
                supports<bp_rms_norm_backward_args>, backward_workspace<bp_rms_norm_backward_args>>(
        kernel_row("rms_norm_backward", BP_OP_RMS_NORM_BACKWARD, kFloatDtypes, kFlags));

}  // namespace bp::cuda
