// matmul, of floats and of integers, for tensors of every layout (matmul.comp,
// matmul_subgroup.comp).
#include <algorithm>
#include <string>

#include "backends/vulkan/kernels/product.hpp"
#include "backplane/shell/product.hpp"
#include "backplane/shell/quantized.hpp"

namespace bp::vulkan {
namespace {

Matrix matrix_of(const bp_tensor& t) {
  Matrix matrix{
      .dtype = t.dtype, .row_stride = t.strides[t.ndim - 2], .col_stride = t.strides[t.ndim - 1]};
  std::copy_n(t.strides, t.ndim - 2, matrix.batch_strides.begin());
  return matrix;
}

Product product_of(const bp_matmul_args& args) {
  const uint32_t ndim = args.a->ndim;
  Product p{.m = args.a->shape[ndim - 2],
            .n = args.b->shape[ndim - 1],
            .k = args.a->shape[ndim - 1],
            .batch_ndim = ndim - 2,
            .a = matrix_of(*args.a),
            .b = matrix_of(*args.b),
            .y = matrix_of(*args.y)};
  std::copy_n(args.a->shape, ndim - 2, p.batch_shape.begin());
  return p;
}

bp_reason matmul_supports(const bp_matmul_args& args) { return scaled_sum_reason(args); }

// A longer sum of integers takes more than 65,535 slices, after which drivers may end a loop.
constexpr int64_t kMostIntegerTerms = 1'000'000;

bp_reason integers_supports(const bp_matmul_args& args) {
  if (args.a->shape[args.a->ndim - 1] > kMostIntegerTerms) {
    return "a sum of integers has more than 1,000,000 terms";
  }
  return scaled_sum_reason(args);
}

uint64_t matmul_workspace(const bp_matmul_args& args, const Env& env) {
  return product_workspace(env, product_of(args));
}

bp_status submit_matmul(const bp_matmul_args& args, Launch& launch) {
  Product p = product_of(args);
  p.a.address = address_of(launch, args.a);
  p.a.tensor = args.a;
  p.b.address = address_of(launch, args.b);
  p.b.tensor = args.b;
  p.y.address = address_of(launch, args.y);
  p.y.tensor = args.y;
  return submit_product(launch, p, Ranges(launch, {args.a, args.b}), Ranges(launch, {args.y}),
                        launch.workspace_address());
}

bp_status matmul_launch(const bp_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = matmul_supports(args)) return launch.refuse(BP_UNSUPPORTED, reason);
  return submit_matmul(args, launch);
}

bp_status integers_launch(const bp_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = integers_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul: ") + reason);
  }
  return submit_matmul(args, launch);
}

}  // namespace

constinit const bp_kernel kMatmul =
    make_kernel<bp_matmul_args, matmul_launch, matmul_supports, matmul_workspace>(
        kernel_row("matmul", BP_OP_MATMUL, {kShaderProductDtypes, 3}));
constinit const bp_kernel kMatmulIntegers =
    make_kernel<bp_matmul_args, integers_launch, integers_supports>(
        kernel_row("matmul.integers", BP_OP_MATMUL, {kIntegerProductDtypes, 3}));

}  // namespace bp::vulkan
