// matmul: y = a b over the last two axes (product.hpp).
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product_plan.hpp"

namespace bp::kernels {
namespace {

template <Subnormals subnormals>
uint64_t matmul_workspace(const bp_matmul_args& args, const Env& env) {
  return product_workspace_size_bytes(product_of(args), env, subnormals);
}

template <Subnormals subnormals>
bp_status matmul_launch(const bp_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = scaled_sum_reason(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul: ") + reason);
  }
  return submit_product(product_of(args), launch, subnormals);
}

bp_reason matmul_supports(const bp_matmul_args& args) { return scaled_sum_reason(args); }

bp_reason dot_bf16_supports(const bp_matmul_args& args) {
  if (const bp_reason reason = dot_bf16_refusal()) return reason;
  return matmul_supports(args);
}

}  // namespace

extern constinit const bp_kernel kMatmulDotBf16 =
    make_kernel<bp_matmul_args, matmul_launch<Subnormals::flushed>, dot_bf16_supports,
                matmul_workspace<Subnormals::flushed>>(dot_bf16_row(
        kernel_row_of_any_shape("matmul.dot_bf16", BP_OP_MATMUL, {kDotBf16Dtypes, 3})));

extern constinit const bp_kernel kMatmul =
    make_kernel<bp_matmul_args, matmul_launch<Subnormals::kept>, matmul_supports,
                matmul_workspace<Subnormals::kept>, ProductOpPlan<bp_matmul_args, product_of>>(
        kernel_row("matmul", BP_OP_MATMUL, {kProductDtypes, 3}));

}  // namespace bp::kernels
