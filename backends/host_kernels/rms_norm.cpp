// rms_norm:  y = x * rstd * gamma  over the last axes, and its gradients (norm_rows.cpp,
// norm_backward.cpp)
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/norm.hpp"

namespace bp::kernels {
namespace {

NormForward forward_of(const bp_rms_norm_args& args) {
  NormForward norm(NormShape(*args.x, args.normalized_ndim, false), args.eps);
  const uint32_t outer_ndim = norm.shape.outer_ndim;
  norm.x = {args.x, outer_ndim};
  norm.gamma = {args.gamma, 0};
  norm.y = {args.y, outer_ndim};
  norm.rstd = {args.rstd, outer_ndim};
  return norm;
}

uint64_t rms_norm_workspace(const bp_rms_norm_args& args, const Env&) {
  return forward_of(args).reserve();
}

bp_status rms_norm_launch(const bp_rms_norm_args& args, Launch& launch) {
  return forward_of(args).submit(launch);
}

NormBackward backward_of(const bp_rms_norm_backward_args& args) {
  NormBackward norm(NormShape(*args.x, args.normalized_ndim, false));
  const uint32_t outer_ndim = norm.shape.outer_ndim;
  norm.grad_y = {args.grad_y, outer_ndim, true};
  norm.x = {args.x, outer_ndim, true};
  norm.gamma = {args.gamma, 0};
  norm.rstd = {args.rstd, outer_ndim};
  norm.grad_x = {args.grad_x, outer_ndim, true};
  norm.grad_gamma = {args.grad_gamma, 0};
  return norm;
}

uint64_t rms_norm_backward_workspace(const bp_rms_norm_backward_args& args, const Env&) {
  return backward_of(args).reserve();
}

bp_status rms_norm_backward_launch(const bp_rms_norm_backward_args& args, Launch& launch) {
  return backward_of(args).submit(launch);
}

}  // namespace

extern constinit const bp_kernel kRmsNorm =
    make_kernel<bp_rms_norm_args, rms_norm_launch, nullptr, rms_norm_workspace>(
        kernel_row("rms_norm", BP_OP_RMS_NORM, kFloatDtypes, BP_KERNEL_IN_PLACE));

extern constinit const bp_kernel kRmsNormBackward =
    make_kernel<bp_rms_norm_backward_args, rms_norm_backward_launch, nullptr,
                rms_norm_backward_workspace>(
        kernel_row("rms_norm_backward", BP_OP_RMS_NORM_BACKWARD, kFloatDtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
