// layer_norm:  y = (x - mean) * rstd * gamma + beta  over the last axes, and its gradients
// (norm_rows.cpp, norm_backward.cpp)
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/norm.hpp"

namespace bp::kernels {
namespace {

NormForward forward_of(const bp_layer_norm_args& args) {
  NormForward norm(NormShape(*args.x, args.normalized_ndim, true), args.eps);
  const uint32_t outer_ndim = norm.shape.outer_ndim;
  norm.x = {args.x, outer_ndim};
  norm.gamma = {args.gamma, 0};
  norm.beta = {args.beta, 0};
  norm.y = {args.y, outer_ndim};
  norm.mean = {args.mean, outer_ndim};
  norm.rstd = {args.rstd, outer_ndim};
  return norm;
}

uint64_t layer_norm_workspace(const bp_layer_norm_args& args, const Env&) {
  return forward_of(args).reserve();
}

bp_status layer_norm_launch(const bp_layer_norm_args& args, Launch& launch) {
  return forward_of(args).submit(launch);
}

NormBackward backward_of(const bp_layer_norm_backward_args& args) {
  NormBackward norm(NormShape(*args.x, args.normalized_ndim, true));
  const uint32_t outer_ndim = norm.shape.outer_ndim;
  norm.grad_y = {args.grad_y, outer_ndim, true};
  norm.x = {args.x, outer_ndim, true};
  norm.gamma = {args.gamma, 0};
  norm.mean = {args.mean, outer_ndim};
  norm.rstd = {args.rstd, outer_ndim};
  norm.grad_x = {args.grad_x, outer_ndim, true};
  norm.grad_gamma = {args.grad_gamma, 0};
  norm.grad_beta = {args.grad_beta, 0};
  return norm;
}

uint64_t layer_norm_backward_workspace(const bp_layer_norm_backward_args& args, const Env&) {
  return backward_of(args).reserve();
}

bp_status layer_norm_backward_launch(const bp_layer_norm_backward_args& args, Launch& launch) {
  return backward_of(args).submit(launch);
}

}  // namespace

extern constinit const bp_kernel kLayerNorm =
    make_kernel<bp_layer_norm_args, layer_norm_launch, nullptr, layer_norm_workspace>(
        kernel_row("layer_norm", BP_OP_LAYER_NORM, kFloatDtypes, BP_KERNEL_IN_PLACE));

extern constinit const bp_kernel kLayerNormBackward =
    make_kernel<bp_layer_norm_backward_args, layer_norm_backward_launch, nullptr,
                layer_norm_backward_workspace>(kernel_row(
        "layer_norm_backward", BP_OP_LAYER_NORM_BACKWARD, kFloatDtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
