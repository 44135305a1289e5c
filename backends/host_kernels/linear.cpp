// linear: y = activation(x weight^T + bias). The axes of x before the last two are a batch that
// shares weight, which product.cpp folds into rows where x and y lie so.
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product_plan.hpp"

namespace bp::kernels {
namespace {

bp_reason linear_supports(const bp_linear_args& args) {
  const bool is_known =
      args.activation >= BP_LINEAR_ACTIVATION_NONE && args.activation <= BP_LINEAR_ACTIVATION_SILU;
  return is_known ? nullptr : "the activation is not known";
}

uint64_t linear_workspace(const bp_linear_args& args, const Env& env) {
  return product_workspace_size_bytes(product_of(args), env);
}

bp_status linear_launch(const bp_linear_args& args, Launch& launch) {
  if (const bp_reason reason = linear_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("linear: ") + reason);
  }
  return submit_product(product_of(args), launch);
}

}  // namespace

constinit const bp_kernel kLinear =
    make_kernel<bp_linear_args, linear_launch, linear_supports, linear_workspace,
                ProductOpPlan<bp_linear_args, product_of>>(
        kernel_row_of_any_shape("linear", BP_OP_LINEAR, {kProductDtypes, 3}));

}  // namespace bp::kernels
