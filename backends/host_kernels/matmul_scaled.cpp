// matmul_scaled: y = a b^T of quantised factors (scaled_product.hpp).
#include <string>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/product.hpp"
#include "backends/host_kernels/scaled_library.hpp"
#include "backends/host_kernels/scaled_panels.hpp"
#include "backends/host_kernels/scaled_product.hpp"

namespace bp::kernels {
namespace {

// With more rows of floats it is faster to turn b into floats first. On one thread of a Zen 4 this
// takes 16 ms for a b of (4096, 4096), and each row then 0.32 instead of 0.68 ms. By vdpbf16ps a
// row takes 0.35 ms, and b stays as it is.
constexpr int64_t kMostFloatRows = 40;

bool takes_panels(const ScaledProduct& p) {
  return !p.is_integer && !p.flushes_subnormals && p.rows > kMostFloatRows;
}

template <Subnormals subnormals>
ScaledProduct product_for(ScaledProduct p) {
  p.flushes_subnormals = subnormals == Subnormals::flushed;
  return p;
}

template <Subnormals subnormals>
bp_reason matmul_scaled_supports(const bp_matmul_scaled_args& args) {
  if constexpr (subnormals == Subnormals::flushed) {
    if (args.a->dtype != BP_BF16) return "a does not consist of bf16";
    if (const bp_reason reason = dot_bf16_refusal()) return reason;
    if (const bp_reason reason = scaled_dot_bf16_refusal(args)) return reason;
  }
  if (const bp_reason reason = scaled_product_refusal(args)) return reason;
  const ScaledProduct p = product_for<subnormals>(scaled_shape_of(args));
  return takes_panels(p) ? scaled_panels_refusal(p) : nullptr;
}

template <Subnormals subnormals>
uint64_t matmul_scaled_workspace(const bp_matmul_scaled_args& args, const Env& env) {
  if (matmul_scaled_supports<subnormals>(args) != nullptr) return 0;  // launch() refuses it.
  const ScaledProduct p = product_for<subnormals>(scaled_shape_of(args));
  if (scaled_library_refusal(p) == nullptr) return scaled_library_workspace_size_bytes(p, env);
  return takes_panels(p) ? scaled_panels_workspace_size_bytes(p, env.thread_count())
                         : scaled_rows_workspace_size_bytes(p, env.thread_count());
}

template <Subnormals subnormals>
bp_status matmul_scaled_launch(const bp_matmul_scaled_args& args, Launch& launch) {
  if (const bp_reason reason = matmul_scaled_supports<subnormals>(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul_scaled: ") + reason);
  }
  const ScaledProduct p = product_for<subnormals>(scaled_product_of(args));
  if (scaled_library_refusal(p) == nullptr) return submit_scaled_library(p, launch);
  return launch.submit([p, workspace = launch.workspace(), threads = launch.thread_count()] {
    if (p.rows == 0 || p.cols == 0) return;
    takes_panels(p) ? run_scaled_panels(p, workspace, threads)
                    : run_scaled_rows(p, workspace, threads);
  });
}

// The kernel takes every dtype that the spec has for (a, b, b_scale, a_scale, y).
constexpr bp_kernel row_of_all_dtypes(const char* name) {
  bp_kernel row = kernel_row(name, BP_OP_MATMUL_SCALED, {});
  row.dtype_count = 5;
  return row;
}

}  // namespace

extern constinit const bp_kernel kMatmulScaledDotBf16 =
    make_kernel<bp_matmul_scaled_args, matmul_scaled_launch<Subnormals::flushed>,
                matmul_scaled_supports<Subnormals::flushed>,
                matmul_scaled_workspace<Subnormals::flushed>>(
        dot_bf16_row(row_of_all_dtypes("matmul_scaled.dot_bf16")));

extern constinit const bp_kernel kMatmulScaled =
    make_kernel<bp_matmul_scaled_args, matmul_scaled_launch<Subnormals::kept>,
                matmul_scaled_supports<Subnormals::kept>, matmul_scaled_workspace<Subnormals::kept>,
                ScaledPlan>(row_of_all_dtypes("matmul_scaled"));

}  // namespace bp::kernels
