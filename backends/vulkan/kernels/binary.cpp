// add, sub, mul, div, maximum, minimum, eq and lt, for tensors of every layout (map.comp).
#include "backends/vulkan/kernels/map.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

template <typename Args, MapOp kOp>
bp_status binary_launch(const Args& args, Launch& launch) {
  const uint64_t scalar = args.b == nullptr ? convert_scalar(args.b_scalar, args.a->dtype) : 0;
  return submit_map(launch, kOp, {args.y, args.a, args.b}, scalar);
}

template <typename Args, MapOp kOp, size_t kCount>
constexpr bp_kernel binary_kernel(const char* name, uint32_t op, const bp_dtype (&dtypes)[kCount]) {
  return make_kernel<Args, binary_launch<Args, kOp>>({
      .name = name,
      .op = op,
      .flags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR,
      .dtype_rows = dtypes,
      .dtype_row_count = kCount,
      .dtype_count = 1,
  });
}

}  // namespace

constinit const bp_kernel kAdd =
    binary_kernel<bp_add_args, kMapAdd>("add", BP_OP_ADD, kArithmeticDtypes);
constinit const bp_kernel kSub =
    binary_kernel<bp_sub_args, kMapSub>("sub", BP_OP_SUB, kArithmeticDtypes);
constinit const bp_kernel kMul =
    binary_kernel<bp_mul_args, kMapMul>("mul", BP_OP_MUL, kArithmeticDtypes);
constinit const bp_kernel kDiv =
    binary_kernel<bp_div_args, kMapDiv>("div", BP_OP_DIV, kFloatDtypes);
constinit const bp_kernel kMaximum =
    binary_kernel<bp_maximum_args, kMapMaximum>("maximum", BP_OP_MAXIMUM, kArithmeticDtypes);
constinit const bp_kernel kMinimum =
    binary_kernel<bp_minimum_args, kMapMinimum>("minimum", BP_OP_MINIMUM, kArithmeticDtypes);
constinit const bp_kernel kEq = binary_kernel<bp_eq_args, kMapEq>("eq", BP_OP_EQ, kAnyDtypes);
constinit const bp_kernel kLt = binary_kernel<bp_lt_args, kMapLt>("lt", BP_OP_LT, kAnyDtypes);

}  // namespace bp::vulkan
