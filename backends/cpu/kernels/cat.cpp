// cat: each tensor of the list is copied to its part of y.
#include <vector>

#include "backends/cpu/kernels/copy.hpp"
#include "backends/cpu/kernels/indices.hpp"
#include "backends/cpu/kernels/loop.hpp"

namespace bp::kernels {
namespace {

bp_status cat_launch(const bp_cat_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  std::vector<Loop> loops;
  loops.reserve(args.xs_count);
  bp_tensor part = *args.y;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    const bp_tensor& x = *args.xs[i];
    if (element_count(x) == 0) continue;
    part.shape = x.shape;
    loops.push_back(make_loop({&part, &x}));
    part.byte_offset += static_cast<uint64_t>(x.shape[axis] * part.strides[axis] * size_bytes);
  }
  return launch.submit([loops = std::move(loops), size_bytes, threads = launch.thread_count()] {
    for (const Loop& loop : loops) run_copy(loop, size_bytes, threads);
  });
}

}  // namespace

constinit const bp_kernel kCat = make_kernel<bp_cat_args, cat_launch>({
    .name = "cat",
    .op = BP_OP_CAT,
    .flags = BP_KERNEL_DETERMINISTIC,
    .dtype_rows = kMovable,
    .dtype_row_count = std::size(kMovable),
    .dtype_count = 1,
    .layouts = BP_LAYOUT_ANY,
});

}  // namespace bp::kernels
