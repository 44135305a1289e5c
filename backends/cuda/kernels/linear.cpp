// linear: y = activation(x weight^T + bias). The axes of x before the last two are a batch that
// shares weight, which product.cpp folds into rows where x and y lie so.
//
// cuBLASLt adds the bias to the sums. Its relu is not used, because its result for NaN is not
// documented. Its gelu is not used, because it is the approximation by tanh. The activation is a
// separate pass.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/product_library.hpp"

namespace bp::cuda {
namespace {

bp_reason linear_supports(const bp_linear_args& args) {
  const bool is_known =
      args.activation >= BP_LINEAR_ACTIVATION_NONE && args.activation <= BP_LINEAR_ACTIVATION_SILU;
  return is_known ? scaled_sum_reason(args) : "the activation is not known";
}

bp_status tiles_launch(const bp_linear_args& args, Launch& launch) {
  if (const bp_reason reason = linear_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("linear: ") + reason);
  }
  return launch_product_tiles(product_of(args), launch);
}

template <bool kAllowsTf32>
struct LinearKernel : ProductKernel<bp_linear_args, kAllowsTf32> {
  using Base = ProductKernel<bp_linear_args, kAllowsTf32>;

  static bp_reason supports(const bp_linear_args& args, bp_launch_flags flags, const Env& env) {
    if (const bp_reason reason = linear_supports(args)) return reason;
    return Base::supports(args, flags, env);
  }
  static bp_status launch(const bp_linear_args& args, Launch& launch) {
    if (const bp_reason reason = linear_supports(args)) {
      return launch.refuse(BP_UNSUPPORTED, std::string("linear: ") + reason);
    }
    return Base::launch(args, launch);
  }
};

}  // namespace

constinit const bp_kernel kLinearLibrary = make_library_kernel<bp_linear_args, LinearKernel<false>>(
    product_row("linear.cublaslt", BP_OP_LINEAR, kWideLibraryDtypes, 1));
constinit const bp_kernel kLinearLibraryNarrow =
    make_library_kernel<bp_linear_args, LinearKernel<false>>(product_row(
        "linear.cublaslt_narrow", BP_OP_LINEAR, kNarrowLibraryDtypes, 1, &kTensorCoreNumerics));
constinit const bp_kernel kLinearLibraryTf32 =
    make_library_kernel<bp_linear_args, LinearKernel<true>>(
        product_row("linear.cublaslt_tf32", BP_OP_LINEAR, kTf32Dtypes, 2, &kTf32Numerics));
constinit const bp_kernel kLinearTiles = make_kernel<bp_linear_args, tiles_launch, linear_supports>(
    product_row("linear.tiles", BP_OP_LINEAR, kProductDtypes, 0));

}  // namespace bp::cuda
