// linear: y = activation(x weight^T + bias). The axes of x before the last two are a batch that
// shares weight, which product.cpp folds into rows where x and y lie so.
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product_plan.hpp"

namespace bp::kernels {
namespace {

bp_reason linear_supports(const bp_linear_args& args) {
  const bool is_known =
      args.activation >= BP_LINEAR_ACTIVATION_NONE && args.activation <= BP_LINEAR_ACTIVATION_SILU;
  return is_known ? scaled_sum_reason(args) : "the activation is not known";
}

template <Subnormals subnormals>
uint64_t linear_workspace(const bp_linear_args& args, const Env& env) {
  return product_workspace_size_bytes(product_of(args), env, subnormals);
}

template <Subnormals subnormals>
bp_status linear_launch(const bp_linear_args& args, Launch& launch) {
  if (const bp_reason reason = linear_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("linear: ") + reason);
  }
  return submit_product(product_of(args), launch, subnormals);
}

bp_reason dot_bf16_supports(const bp_linear_args& args) {
  if (const bp_reason reason = dot_bf16_refusal()) return reason;
  return linear_supports(args);
}

}  // namespace

extern constinit const bp_kernel kLinearDotBf16 =
    make_kernel<bp_linear_args, linear_launch<Subnormals::flushed>, dot_bf16_supports,
                linear_workspace<Subnormals::flushed>>(dot_bf16_row(
        kernel_row_of_any_shape("linear.dot_bf16", BP_OP_LINEAR, {kDotBf16Dtypes, 3})));

extern constinit const bp_kernel kLinear =
    make_kernel<bp_linear_args, linear_launch<Subnormals::kept>, linear_supports,
                linear_workspace<Subnormals::kept>, ProductOpPlan<bp_linear_args, product_of>>(
        kernel_row_of_any_shape("linear", BP_OP_LINEAR, {kProductDtypes, 3}));

}  // namespace bp::kernels
