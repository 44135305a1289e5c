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
                ProductOpPlan<bp_linear_args, product_of>>({
        .name = "linear",
        .op = BP_OP_LINEAR,
        .flags = BP_KERNEL_DETERMINISTIC,
        .supports_ignores = BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ALIGNMENT,
        .dtype_rows = kProductDtypes,
        .dtype_row_count = std::size(kProductDtypes) / 3,
        .dtype_count = 3,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels
