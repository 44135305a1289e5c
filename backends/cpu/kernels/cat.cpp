// cat: each tensor of the list is copied to its part of y.
#include <cstring>
#include <vector>

#include "backends/cpu/kernels/indices.hpp"
#include "backends/cpu/kernels/loop.hpp"

namespace bp::kernels {
namespace {

// data and strides are those of (y, x).
template <typename T>
void copy_row(std::byte* const* data, const int64_t* strides, int64_t n, const void*) {
  std::byte* y = data[0];
  const std::byte* x = data[1];
  if (strides[0] == sizeof(T) && strides[1] == sizeof(T)) {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < n; ++i, y += strides[0], x += strides[1]) {
    *reinterpret_cast<T*>(y) = *reinterpret_cast<const T*>(x);
  }
}

RowFunction* row_of_width(int64_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return copy_row<uint8_t>;
    case 2:
      return copy_row<uint16_t>;
    case 4:
      return copy_row<uint32_t>;
    default:
      return copy_row<uint64_t>;
  }
}

bp_status cat_launch(const bp_cat_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  RowFunction* const row = row_of_width(size_bytes);
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
  return launch.submit([loops = std::move(loops), row, threads = launch.thread_count()] {
    for (const Loop& loop : loops) run_loop(loop, row, threads, kGrain);
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
