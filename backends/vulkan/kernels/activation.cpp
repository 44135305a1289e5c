// gelu and its gradient, for tensors of every layout (map.comp).
#include "backends/vulkan/kernels/map.hpp"

namespace bp::vulkan {
namespace {

bp_status gelu_launch(const bp_gelu_args& args, Launch& launch) {
  const bool is_tanh = args.approximation == BP_GELU_APPROXIMATION_TANH;
  return submit_map(launch, is_tanh ? kMapGeluTanh : kMapGelu, {args.y, args.x});
}

bp_status gelu_backward_launch(const bp_gelu_backward_args& args, Launch& launch) {
  const bool is_tanh = args.approximation == BP_GELU_BACKWARD_APPROXIMATION_TANH;
  return submit_map(launch, is_tanh ? kMapGeluTanhBackward : kMapGeluBackward,
                    {args.grad_x, args.grad_y, args.x});
}

bp_reason gelu_supports(const bp_gelu_args& args) {
  const bool is_known = args.approximation == BP_GELU_APPROXIMATION_NONE ||
                        args.approximation == BP_GELU_APPROXIMATION_TANH;
  return is_known ? nullptr : "the approximation is not known";
}

bp_reason gelu_backward_supports(const bp_gelu_backward_args& args) {
  const bool is_known = args.approximation == BP_GELU_BACKWARD_APPROXIMATION_NONE ||
                        args.approximation == BP_GELU_BACKWARD_APPROXIMATION_TANH;
  return is_known ? nullptr : "the approximation is not known";
}

}  // namespace

constinit const bp_kernel kGelu = make_kernel<bp_gelu_args, gelu_launch, gelu_supports>(
    kernel_row("gelu", BP_OP_GELU, kF32Dtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kGeluBackward =
    make_kernel<bp_gelu_backward_args, gelu_backward_launch, gelu_backward_supports>(
        kernel_row("gelu_backward", BP_OP_GELU_BACKWARD, kF32Dtypes, BP_KERNEL_IN_PLACE));

}  // namespace bp::vulkan
