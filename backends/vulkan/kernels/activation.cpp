// tanh, sigmoid, gelu and silu, and their gradients, for tensors of every layout (map.comp).
#include "backends/vulkan/kernels/map.hpp"

namespace bp::vulkan {
namespace {

template <typename Args, MapOp kOp>
bp_status activation_launch(const Args& args, Launch& launch) {
  return submit_map(launch, kOp, {args.y, args.x});
}

// The gradient in terms of the result, and in terms of the argument.
template <typename Args, MapOp kOp>
bp_status backward_by_y_launch(const Args& args, Launch& launch) {
  return submit_map(launch, kOp, {args.grad_x, args.grad_y, args.y});
}

template <typename Args, MapOp kOp>
bp_status backward_by_x_launch(const Args& args, Launch& launch) {
  return submit_map(launch, kOp, {args.grad_x, args.grad_y, args.x});
}

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

constexpr bp_kernel activation_row(const char* name, uint32_t op) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_IN_PLACE,
      .dtype_rows = kF32Dtypes,
      .dtype_row_count = std::size(kF32Dtypes),
      .dtype_count = 1,
  };
}

}  // namespace

constinit const bp_kernel kTanh =
    make_kernel<bp_tanh_args, activation_launch<bp_tanh_args, kMapTanh>>(
        activation_row("tanh", BP_OP_TANH));
constinit const bp_kernel kTanhBackward =
    make_kernel<bp_tanh_backward_args,
                backward_by_y_launch<bp_tanh_backward_args, kMapTanhBackward>>(
        activation_row("tanh_backward", BP_OP_TANH_BACKWARD));
constinit const bp_kernel kSigmoid =
    make_kernel<bp_sigmoid_args, activation_launch<bp_sigmoid_args, kMapSigmoid>>(
        activation_row("sigmoid", BP_OP_SIGMOID));
constinit const bp_kernel kSigmoidBackward =
    make_kernel<bp_sigmoid_backward_args,
                backward_by_y_launch<bp_sigmoid_backward_args, kMapSigmoidBackward>>(
        activation_row("sigmoid_backward", BP_OP_SIGMOID_BACKWARD));
constinit const bp_kernel kGelu =
    make_kernel<bp_gelu_args, gelu_launch, gelu_supports>(activation_row("gelu", BP_OP_GELU));
constinit const bp_kernel kGeluBackward =
    make_kernel<bp_gelu_backward_args, gelu_backward_launch, gelu_backward_supports>(
        activation_row("gelu_backward", BP_OP_GELU_BACKWARD));
constinit const bp_kernel kSilu =
    make_kernel<bp_silu_args, activation_launch<bp_silu_args, kMapSilu>>(
        activation_row("silu", BP_OP_SILU));
constinit const bp_kernel kSiluBackward =
    make_kernel<bp_silu_backward_args,
                backward_by_x_launch<bp_silu_backward_args, kMapSiluBackward>>(
        activation_row("silu_backward", BP_OP_SILU_BACKWARD));

}  // namespace bp::vulkan
