// matmul_scaled: y = a b^T of quantised factors (scaled_product.hpp).
#include <array>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/scaled_library.hpp"
#include "backends/host_kernels/scaled_product.hpp"

namespace bp::kernels {
namespace {

// With more rows of floats it is faster to turn b into floats and to multiply those.
constexpr int64_t kMostFloatRows = 16;

bp_reason matmul_scaled_supports(const bp_matmul_scaled_args& args) {
  if (const bp_reason reason = scaled_product_refusal(args)) return reason;
  if (args.a_scale == nullptr && element_count(*args.a) / args.b->shape[1] > kMostFloatRows) {
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

constexpr bp_dtype kFactors[] = {BP_I8, BP_F32, BP_F16, BP_BF16};
constexpr bp_dtype kWeights[] = {BP_I8, BP_U8, BP_I4, BP_U4};
constexpr bp_dtype kScales[] = {BP_F32, BP_F16, BP_BF16, BP_F8E8M0FNU, BP_F8E4M3FN};
constexpr bp_dtype kResults[] = {BP_F32, BP_F16, BP_BF16};

// The dtypes of (a, b, b_scale, a_scale, y). An a of floats has no scale, and one row fits that.
// NOLINTNEXTLINE(readability-function-cognitive-complexity): the loops are one product of lists.
constexpr auto make_rows() {
  constexpr size_t kScalesOfA = std::size(kScales) + std::size(kFactors) - 1;
  std::array<bp_dtype,
             5 * kScalesOfA * std::size(kWeights) * std::size(kScales) * std::size(kResults)>
      rows{};
  size_t at = 0;
  for (const bp_dtype a : kFactors) {
    for (const bp_dtype b : kWeights) {
      for (const bp_dtype b_scale : kScales) {
        for (const bp_dtype a_scale : kScales) {
          if (a != BP_I8 && a_scale != BP_F32) continue;
          for (const bp_dtype y : kResults) {
            for (const bp_dtype dtype : {a, b, b_scale, a_scale, y}) rows[at++] = dtype;
          }
        }
      }
    }
  }
  return rows;
}
constexpr auto kRows = make_rows();

}  // namespace

constinit const bp_kernel kMatmulScaled =
    make_kernel<bp_matmul_scaled_args, matmul_scaled_launch, matmul_scaled_supports,
                matmul_scaled_workspace, ScaledPlan>(
        kernel_row("matmul_scaled", BP_OP_MATMUL_SCALED, {kRows, 5}));

}  // namespace bp::kernels
