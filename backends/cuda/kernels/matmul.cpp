// matmul: y = a b over the last two axes (product.hpp).
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/product_library.hpp"

namespace bp::cuda {
namespace {

bp_reason tiles_supports(const bp_matmul_args& args) { return scaled_sum_reason(args); }

bp_status tiles_launch(const bp_matmul_args& args, Launch& launch) {
  if (const bp_reason reason = tiles_supports(args)) {
    return launch.refuse(BP_UNSUPPORTED, std::string("matmul: ") + reason);
  }
  return launch_product_tiles(product_of(args), launch);
}

}  // namespace

constinit const bp_kernel kMatmulLibrary =
    make_library_kernel<bp_matmul_args, ProductKernel<bp_matmul_args, false>>(
        product_row("matmul.cublaslt", BP_OP_MATMUL, kWideLibraryDtypes, 1));
constinit const bp_kernel kMatmulLibraryNarrow =
    make_library_kernel<bp_matmul_args, ProductKernel<bp_matmul_args, false>>(product_row(
        "matmul.cublaslt_narrow", BP_OP_MATMUL, kNarrowLibraryDtypes, 1, &kTensorCoreNumerics));
constinit const bp_kernel kMatmulLibraryTf32 =
    make_library_kernel<bp_matmul_args, ProductKernel<bp_matmul_args, true>>(
        product_row("matmul.cublaslt_tf32", BP_OP_MATMUL, kTf32Dtypes, 2, &kTf32Numerics));
constinit const bp_kernel kMatmulTiles = make_kernel<bp_matmul_args, tiles_launch, tiles_supports>(
    product_row("matmul.tiles", BP_OP_MATMUL, kProductDtypes, 0));

}  // namespace bp::cuda
