// unfold (columns.hpp). A row of columns is written from its beginning to its end: zeros, then
// elements of a row of the image, then zeros, for each row of windows. A result that does not stay
// in a cache is put together in a buffer, and written past the caches.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/unfold.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>

#include "backends/host_kernels/columns.hpp"
#include "backends/host_kernels/dense_rows-inl.hpp"
#include "backends/host_kernels/dtypes.hpp"

#ifndef BACKPLANE_CPU_UNFOLD_PLAN
#define BACKPLANE_CPU_UNFOLD_PLAN
namespace bp::kernels {
namespace {

// Computes the rows [begin, end) of the columns of all images.
using UnfoldRows = void(const Columns& p, int64_t begin, int64_t end, bool is_streamed);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Writes the windows [begin, end) of row k to `to`.
template <typename T>
void unfold_windows(const Columns& p, const Tap& tap, int64_t k, const Range& of, T* to) {
  const int64_t a = p.window.input_of(1, k, tap.i);
  const bool has_row = a >= 0 && a < p.image.extent[1];
  const Range in = has_row ? tap.inside(p, of.begin, of.end) : Range{of.end, of.end};
  std::fill(to, to + (in.begin - of.begin), T{0});
  if (in.size() > 0) {
    const int64_t c = p.window.input_of(2, in.begin, tap.j);
    const std::byte* const from =
        p.image.plane(tap.plane) +
        (a * p.image.stride[1] + c * p.image.stride[2]) * int64_t{sizeof(T)};
    gather_row(from, p.window.stride[2] * p.image.stride[2] * int64_t{sizeof(T)}, in.size(),
               to + (in.begin - of.begin));
  }
  std::fill(to + (in.begin - of.begin) + in.size(), to + of.size(), T{0});
}

// Writes the windows [begin, begin + n) of a row of columns.
template <typename T>
void unfold_block(const Columns& p, const Tap& tap, int64_t begin, int64_t n, T* to) {
  int64_t k = begin / p.across, first = begin % p.across;
  for (int64_t done = 0; done < n; first = 0, ++k) {
    const int64_t count = std::min(p.across - first, n - done);
    unfold_windows(p, tap, k, {first, first + count}, to + done);
    done += count;
  }
}

template <typename T>
void unfold_rows(const Columns& p, int64_t begin, int64_t end, bool is_streamed) {
  BlockBuffer<T> buffer;
  for (int64_t row = begin; row < end; ++row) {
    const Tap tap(p, row);
    T* const to = reinterpret_cast<T*>(p.address) + row / p.rows * p.image_stride +
                  row % p.rows * p.row_stride;
    if (p.stride == 1 && !is_streamed) {
      unfold_block(p, tap, 0, p.windows, to);
      continue;
    }
    const int64_t head = is_streamed ? count_to_line(to) : 0;
    for (int64_t i = 0, n = 0; i < p.windows; i += n) {
      n = std::min(i < head ? head - i : kBlock, p.windows - i);
      unfold_block(p, tap, i, n, buffer.elements);
      if (is_streamed) {
        stream_block(buffer.elements, to + i, n);
      } else {
        scatter_block(buffer.elements, reinterpret_cast<std::byte*>(to + i * p.stride),
                      p.stride * int64_t{sizeof(T)}, n);
      }
    }
  }
  if (is_streamed) hwy::FlushStream();
}

// The elements keep their bits, so they are moved as integers of their width.
UnfoldRows* find_rows(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> UnfoldRows* {
    return unfold_rows<hwy::UnsignedFromSize<sizeof(T)>>;
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_rows);

bp_status unfold_launch(const bp_unfold_args& args, Launch& launch) {
  constexpr int64_t kStreamedRowBytes = 1024;  // Shorter rows have too many lines in parts.
  const Columns p(args, *args.x, *args.y);
  UnfoldRows* const run = HWY_DYNAMIC_DISPATCH(find_rows)(args.y->dtype);
  const int64_t size_bytes = dtype_size_bytes(args.y->dtype);
  const int64_t rows = element_count(*args.y) == 0 ? 0 : p.images * p.rows;
  const bool is_streamed = p.stride == 1 && rows * p.windows * size_bytes >= kStreamBytes &&
                           p.windows * size_bytes >= kStreamedRowBytes;
  return launch.submit([=, threads = launch.thread_count()] {
    parallel_for(threads, rows, row_grain(p.windows),
                 [&](int64_t begin, int64_t end) { run(p, begin, end, is_streamed); });
  });
}

}  // namespace

extern constinit const bp_kernel kUnfold =
    make_kernel<bp_unfold_args, unfold_launch>(kernel_row("unfold", BP_OP_UNFOLD, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
