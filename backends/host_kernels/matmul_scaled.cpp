// matmul_scaled: y = a b^T of quantised factors (scaled_product.hpp).
#include <string>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/scaled_library.hpp"
#include "backends/host_kernels/scaled_product.hpp"

namespace bp::kernels {
namespace {

// With more rows of floats it is faster to turn b into floats and to multiply those.
constexpr int64_t kMostFloatRows = 16;

bp_reason matmul_scaled_supports(const bp_matmul_scaled_args& args) {
  if (const bp_reason reason = scaled_product_refusal(args)) return reason;
  const int64_t rows = element_count(*args.a) / args.b->shape[1];
  if (!is_integer_product(args) && rows > kMostFloatRows) {
    return "with more than 16 rows of floats a product of a dequantised b is faster";
  }
  return nullptr;
}

uint64_t matmul_scaled_workspace(const bp_matmul_scaled_args& args, const Env& env) {
  if (matmul_scaled_supports(args) != nullptr) return 0;  // launch() refuses it.
  const ScaledProduct p = scaled_product_of(args);
  if (scaled_library_refusal(p) == nullptr) return scaled_library_workspace_size_bytes(p, env);
  return scaled_rows_workspace_size_bytes(p, env.thread_count());
}

bp_status matmul_scaled_launch(const bp_matmul_scaled_args& args, Launch& launch) {
  if (const bp_reason reason = matmul_scaled_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul_scaled: ") + reason);
  }
  const ScaledProduct p = scaled_product_of(args);
  if (scaled_library_refusal(p) == nullptr) return submit_scaled_library(p, launch);
  return launch.submit([p, workspace = launch.workspace(), threads = launch.thread_count()] {
    if (p.rows != 0 && p.cols != 0) run_scaled_rows(p, workspace, threads);
  });
}

// The kernel takes every dtype that the spec has for (a, b, b_scale, a_scale, y).
constexpr bp_kernel row_of_all_dtypes() {
  bp_kernel row = kernel_row("matmul_scaled", BP_OP_MATMUL_SCALED, {});
  row.dtype_count = 5;
  return row;
}

}  // namespace

constinit const bp_kernel kMatmulScaled =
    make_kernel<bp_matmul_scaled_args, matmul_scaled_launch, matmul_scaled_supports,
                matmul_scaled_workspace, ScaledPlan>(row_of_all_dtypes());

}  // namespace bp::kernels
