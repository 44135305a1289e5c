// neg, abs, exp, log, sqrt, relu and relu_backward, for tensors of every layout (map.comp).
#include "backends/vulkan/kernels/map.hpp"

namespace bp::vulkan {
namespace {

template <typename Args, MapOp kOp>
bp_status unary_launch(const Args& args, Launch& launch) {
  return submit_map(launch, kOp, {args.y, args.x});
}

bp_status relu_backward_launch(const bp_relu_backward_args& args, Launch& launch) {
  return submit_map(launch, kMapReluBackward, {args.grad_x, args.grad_y, args.y});
}

template <size_t kCount>
constexpr bp_kernel unary_row(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount]) {
  return {
      .name = name,
      .op = op,
      .flags = BP_KERNEL_IN_PLACE,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount,
      .dtype_count = 1,
  };
}

template <typename Args, MapOp kOp, size_t kCount>
constexpr bp_kernel unary_kernel(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount]) {
  return make_kernel<Args, unary_launch<Args, kOp>>(unary_row(name, op, dtypes));
}

}  // namespace

constinit const bp_kernel kNeg =
    unary_kernel<bp_neg_args, kMapNeg>("neg", BP_OP_NEG, kArithmeticDtypes);
constinit const bp_kernel kAbs =
    unary_kernel<bp_abs_args, kMapAbs>("abs", BP_OP_ABS, kArithmeticDtypes);
constinit const bp_kernel kExp = unary_kernel<bp_exp_args, kMapExp>("exp", BP_OP_EXP, kFloatDtypes);
constinit const bp_kernel kLog = unary_kernel<bp_log_args, kMapLog>("log", BP_OP_LOG, kFloatDtypes);
constinit const bp_kernel kSqrt =
    unary_kernel<bp_sqrt_args, kMapSqrt>("sqrt", BP_OP_SQRT, kFloatDtypes);
constinit const bp_kernel kRelu =
    unary_kernel<bp_relu_args, kMapRelu>("relu", BP_OP_RELU, kFloatDtypes);
constinit const bp_kernel kReluBackward = make_kernel<bp_relu_backward_args, relu_backward_launch>(
    unary_row("relu_backward", BP_OP_RELU_BACKWARD, kFloatDtypes));

}  // namespace bp::vulkan
