// cat copies each tensor to its part of y (map.comp).
#include <array>

#include "backends/vulkan/kernels/map.hpp"

namespace bp::vulkan {
namespace {

bp_status cat_launch(const bp_cat_args& args, Launch& launch) {
  const auto axis = static_cast<uint32_t>(args.axis);
  int64_t begin = 0;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    const bp_tensor& x = *args.xs[i];
    bp_tensor part = *args.y;
    part.shape = x.shape;
    part.byte_offset +=
        static_cast<uint64_t>(begin * part.strides[axis] * dtype_size_bytes(part.dtype));
    const bp_status status = submit_move(launch, kMapCopy, {&part, &x});
    if (status != BP_OK) return status;
    begin += x.shape[axis];
  }
  return BP_OK;
}

}  // namespace

constinit const bp_kernel kCat =
    make_kernel<bp_cat_args, cat_launch>(kernel_row("cat", BP_OP_CAT, kAnyDtypes));

}  // namespace bp::vulkan
