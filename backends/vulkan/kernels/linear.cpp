// linear is a matrix product with the weight in its own layout, which ends with bias and activation
// (matmul.comp, matmul_subgroup.comp).
#include <algorithm>

#include "backends/vulkan/kernels/product.hpp"
#include "backplane/shell/product.hpp"

namespace bp::vulkan {
namespace {

// Returns the matrix of x. Its rows are the second-last axis, or one row. The axes before are the
// batch.
Matrix rows_of(const bp_tensor& t) {
  Matrix matrix{.dtype = t.dtype,
                .row_stride = t.ndim < 2 ? 0 : t.strides[t.ndim - 2],
                .col_stride = t.strides[t.ndim - 1]};
  if (t.ndim > 2) std::copy_n(t.strides, t.ndim - 2, matrix.batch_strides.begin());
  return matrix;
}

Product product_of(const bp_linear_args& args) {
  const bp_tensor &x = *args.x, &weight = *args.weight;
  Product p{.m = x.ndim < 2 ? 1 : x.shape[x.ndim - 2],
            .n = weight.shape[0],
            .k = weight.shape[1],
            .batch_ndim = x.ndim > 2 ? x.ndim - 2 : 0,
            .a = rows_of(x),
            .b = {.dtype = weight.dtype,
                  .row_stride = weight.strides[1],
                  .col_stride = weight.strides[0]},
            .y = rows_of(*args.y),
            .activation = args.activation,
            .has_bias = args.bias != nullptr,
            .has_preactivation = args.preactivation != nullptr};
  if (x.ndim > 2) std::copy_n(x.shape, x.ndim - 2, p.batch_shape.begin());
  Matrix kept;
  if (args.preactivation != nullptr) kept = rows_of(*args.preactivation);
  // Leading axes without gaps between them become rows of one product, so that tiles are full.
  while (p.batch_ndim > 0) {
    const uint32_t last = p.batch_ndim - 1;
    const auto is_row = [&](const Matrix& matrix) {
      return matrix.batch_strides[last] == matrix.row_stride * p.m;
    };
    if (!is_row(p.a) || !is_row(p.y) || (p.has_preactivation && !is_row(kept))) break;
    p.m *= p.batch_shape[last];
    --p.batch_ndim;
  }
  if (args.bias != nullptr) p.bias_stride = args.bias->strides[0];
  p.preactivation_row_stride = kept.row_stride;
  p.preactivation_col_stride = kept.col_stride;
  return p;
}

bp_reason linear_supports(const bp_linear_args& args) {
  if (args.activation < BP_LINEAR_ACTIVATION_NONE || args.activation > BP_LINEAR_ACTIVATION_SILU) {
    return "the activation is not known";
  }
  if (const bp_reason reason = scaled_sum_reason(args)) return reason;
  const bool is_plain = args.bias == nullptr && args.preactivation == nullptr &&
                        args.activation == BP_LINEAR_ACTIVATION_NONE;
  if (!is_plain && args.weight->shape[1] > kMostOfProduct) return "k is larger than 65536";
  if (args.preactivation != nullptr && product_of(args).batch_ndim != 0) {
    return "x, y and the preactivation are not rows of one matrix each";
  }
  return nullptr;
}

uint64_t linear_workspace(const bp_linear_args& args, const Env& env) {
  return product_workspace(env, product_of(args));
}

bp_status linear_launch(const bp_linear_args& args, Launch& launch) {
  if (const bp_reason reason = linear_supports(args)) return launch.refuse(BP_UNSUPPORTED, reason);
  Product p = product_of(args);
  p.a.address = address_of(launch, args.x);
  p.a.tensor = args.x;
  p.b.address = address_of(launch, args.weight);
  p.b.tensor = args.weight;
  p.y.address = address_of(launch, args.y);
  p.y.tensor = args.y;
  p.bias = address_of(launch, args.bias);
  p.preactivation = address_of(launch, args.preactivation);
  return submit_product(launch, p, Ranges(launch, {args.x, args.weight, args.bias}),
                        Ranges(launch, {args.y, args.preactivation}), launch.workspace_address());
}

}  // namespace

constinit const bp_kernel kLinear =
    make_kernel<bp_linear_args, linear_launch, linear_supports, linear_workspace>(
        kernel_row("linear", BP_OP_LINEAR, {kShaderProductDtypes, 3}));

}  // namespace bp::vulkan
