// cat copies each tensor of the list to its part of y.
#include <utility>

#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/parts.hpp"

namespace bp::kernels {
namespace {

bp_status cat_launch(const bp_cat_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  PartCopies copies(size_bytes);
  bp_tensor part = *args.y;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    const bp_tensor& x = *args.xs[i];
    if (element_count(x) == 0) continue;
    part.shape = x.shape;
    copies.add(make_loop({&part, &x}));
    part.byte_offset += static_cast<uint64_t>(x.shape[axis] * part.strides[axis] * size_bytes);
  }
  copies.join();
  return launch.submit(
      [copies = std::move(copies), threads = launch.thread_count()] { copies.run(threads); });
}

}  // namespace

extern constinit const bp_kernel kCat =
    make_kernel<bp_cat_args, cat_launch>(kernel_row("cat", BP_OP_CAT, kAnyDtypes));

}  // namespace bp::kernels
