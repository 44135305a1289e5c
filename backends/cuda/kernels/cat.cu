// cat copies each tensor of the list to its part of y.
#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/movement.hpp"

namespace bp::cuda {
namespace {

bp_status cat_launch(const bp_cat_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  Operand part = operand(args.y);
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    const bp_tensor& x = *args.xs[i];
    if (element_count(x) == 0) continue;
    const Loop loop = make_loop(x.ndim, x.shape, {part, operand(&x)});
    const bp_status status = submit_copy(launch, loop, size_bytes);
    if (status != BP_OK) return status;
    part.data += x.shape[axis] * args.y->strides[axis] * size_bytes;
  }
  return BP_OK;
}

}  // namespace

constinit const bp_kernel kCat =
    make_kernel<bp_cat_args, cat_launch>(kernel_row("cat", BP_OP_CAT, kAnyDtypes));

}  // namespace bp::cuda
