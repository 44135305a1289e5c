// matmul: y = a b over the last two axes (product.hpp).
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product_plan.hpp"

namespace bp::kernels {
namespace {

uint64_t matmul_workspace(const bp_matmul_args& args, const Env& env) {
  return product_workspace_size_bytes(product_of(args), env);
}

bp_status matmul_launch(const bp_matmul_args& args, Launch& launch) {
  return submit_product(product_of(args), launch);
}

}  // namespace

constinit const bp_kernel kMatmul =
    make_kernel<bp_matmul_args, matmul_launch, nullptr, matmul_workspace,
                ProductOpPlan<bp_matmul_args, product_of>>(
        kernel_row("matmul", BP_OP_MATMUL, {kProductDtypes, 3}));

}  // namespace bp::kernels
