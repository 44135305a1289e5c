// The columns of unfold and fold, whose windows read places of an image, or add to them:
//
//   image (N, C, height, width)     columns (N, C * taps, windows), a row for each tap
//   row a of a plane                the taps (i, j) and the rows k of windows with
//                                   a = k * stride[0] + i * dilation[0] - padding[0]
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/host_kernels/pool.hpp"

namespace bp::kernels {

// The windows are those of the last two of three axes (pool.hpp).
struct Columns {
  template <typename Args>
  Columns(const Args& args, const bp_tensor& its_image, const bp_tensor& columns)
      : window(2, args.kernel_size, args.stride, args.padding, args.dilation),
        image(its_image),
        address(data<std::byte>(columns)),
        image_stride(columns.strides[0]),
        row_stride(columns.strides[1]),
        stride(columns.strides[2]),
        rows(columns.shape[1]),
        windows(columns.shape[2]),
        images(columns.shape[0]) {
    const int64_t reach = window.columns_of(1);
    across = (image.extent[2] + args.padding[1] + args.padding[3] - reach) / window.stride[2] + 1;
  }

  int64_t taps() const { return window.kernel[1] * window.kernel[2]; }

  Window window;
  Planes image;
  std::byte* address;
  int64_t image_stride, row_stride, stride;  // In elements.
  int64_t rows, windows, images;
  int64_t across = 0;  // The windows in a row.
};

// A row of columns: those of one tap in one plane.
struct Tap {
  Tap(const Columns& p, int64_t row)
      : plane(row / p.taps()),
        i(row % p.taps() / p.window.kernel[2]),
        j(row % p.window.kernel[2]) {}

  // Returns the windows [begin, end) of a row whose place for this tap lies in the image.
  Range inside(const Columns& p, int64_t begin, int64_t end) const {
    const int64_t first = p.window.input_of(2, 0, j), step = p.window.stride[2];
    const int64_t least = std::max(begin, divide_up(-first, step));
    return {std::min(least, end), std::min(end, divide_up(p.image.extent[2] - first, step))};
  }

  int64_t plane, i, j;
};

// Returns how many rows are worth a thread, of `work` elements each.
inline int64_t row_grain(int64_t work) {
  return std::max<int64_t>(1, kPoolGrain / std::max<int64_t>(1, work));
}

}  // namespace bp::kernels
