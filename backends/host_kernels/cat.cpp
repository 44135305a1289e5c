// cat copies each tensor of the list to its part of y. Short rows are joined row by row, so that y
// is written from its beginning to its end; the parts that one tensor gives lie far apart.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/host_kernels/copy.hpp"
#include "backends/host_kernels/loop.hpp"

namespace bp::kernels {
namespace {

// A tensor whose rows become parts of the rows of y.
struct Part {
  const std::byte* from;
  int64_t stride_bytes;
  std::byte* to;  // The place of its first row.
  size_t size_bytes;
};

struct JoinedRows {
  int64_t rows = 0, to_stride_bytes = 0, row_length = 0;
  std::vector<Part> parts;
};

// Adds the tensor of a loop over (y, x), if its rows can be joined with those before it.
bool join(JoinedRows& joined, const Loop& loop) {
  constexpr int64_t kShortBytes = 4096;
  const int64_t size_bytes = loop.size_bytes[0];
  if (loop.rank != 2 || loop.is_tiled || loop.extents[1] * size_bytes > kShortBytes ||
      loop.strides[0][1] != size_bytes || loop.strides[1][1] != size_bytes ||
      choose_row_options(loop).is_streamed) {
    return false;
  }
  if (joined.parts.empty()) {
    joined.rows = loop.extents[0];
    joined.to_stride_bytes = loop.strides[0][0];
  } else if (joined.rows != loop.extents[0] || joined.to_stride_bytes != loop.strides[0][0]) {
    return false;
  }
  joined.row_length += loop.extents[1];
  joined.parts.push_back({loop.data[1], loop.strides[1][0], loop.data[0],
                          static_cast<size_t>(loop.extents[1] * size_bytes)});
  return true;
}

void copy_joined(const JoinedRows& joined, int threads) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, joined.row_length));
  parallel_for(threads, joined.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (const Part& part : joined.parts) {
        std::memcpy(part.to + row * joined.to_stride_bytes, part.from + row * part.stride_bytes,
                    part.size_bytes);
      }
    }
  });
}

bp_status cat_launch(const bp_cat_args& args, Launch& launch) {
  const auto axis = static_cast<size_t>(args.axis);
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  std::vector<Loop> loops;  // For tensors whose rows are not joined.
  JoinedRows joined;
  bp_tensor part = *args.y;
  for (uint64_t i = 0; i < args.xs_count; ++i) {
    const bp_tensor& x = *args.xs[i];
    if (element_count(x) == 0) continue;
    part.shape = x.shape;
    const Loop loop = make_loop({&part, &x});
    if (!join(joined, loop)) loops.push_back(loop);
    part.byte_offset += static_cast<uint64_t>(x.shape[axis] * part.strides[axis] * size_bytes);
  }
  return launch.submit([loops = std::move(loops), joined = std::move(joined), size_bytes,
                        threads = launch.thread_count()] {
    copy_joined(joined, threads);
    for (const Loop& loop : loops) run_copy(loop, size_bytes, threads);
  });
}

}  // namespace

constinit const bp_kernel kCat =
    make_kernel<bp_cat_args, cat_launch>(kernel_row("cat", BP_OP_CAT, kAnyDtypes));

}  // namespace bp::kernels
