// Windows that slide over the planes of a tensor, for max_pool and avg_pool. One channel of one
// image is a plane, and threads share the planes: so results depend on the shape alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/cpu/kernels/kernels.hpp"

namespace bp::kernels {

// A tensor (batch, channels, spatial) with three spatial axes; those it lacks lead, with extent 1.
// Strides are in elements.
struct Planes {
  Planes() = default;
  explicit Planes(const bp_tensor& tensor)
      : address(data<std::byte>(tensor)),
        item_size_bytes(dtype_size_bytes(tensor.dtype)),
        channels(tensor.shape[1]),
        batch_stride(tensor.strides[0]),
        channel_stride(tensor.strides[1]) {
    const uint32_t axes = tensor.ndim - 2;
    for (uint32_t i = 0; i < axes; ++i) {
      extent[3 - axes + i] = tensor.shape[2 + i];
      stride[3 - axes + i] = tensor.strides[2 + i];
    }
  }

  int64_t size() const { return extent[0] * extent[1] * extent[2]; }

  // Whether the elements of a plane lie in row-major order without gaps.
  bool is_dense() const {
    return (extent[2] <= 1 || stride[2] == 1) && (extent[1] <= 1 || stride[1] == extent[2]) &&
           (extent[0] <= 1 || stride[0] == extent[1] * extent[2]);
  }

  // Element 0 of a plane; NULL if there are no elements.
  std::byte* plane(int64_t index) const {
    if (address == nullptr) return nullptr;
    return address +
           (index / channels * batch_stride + index % channels * channel_stride) * item_size_bytes;
  }

  std::byte* address = nullptr;
  int64_t item_size_bytes = 0, channels = 0, batch_stride = 0, channel_stride = 0;
  std::array<int64_t, 3> extent = {1, 1, 1}, stride = {};
};

// A range of positions along one axis.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

inline int64_t divide_up(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// Element `tap` of the window of output o is o * stride - low + tap * dilation of the input.
struct Window {
  Window() = default;
  // `dilation` NULL is 1 along every axis.
  Window(uint32_t axes, const int64_t* its_kernel, const int64_t* its_stride,
         const int64_t* padding, const int64_t* its_dilation) {
    for (uint32_t i = 0; i < axes; ++i) {
      const size_t at = 3 - axes + i;
      kernel[at] = its_kernel[i];
      stride[at] = its_stride[i];
      low[at] = padding[i];
      dilation[at] = its_dilation == nullptr ? 1 : its_dilation[i];
    }
  }

  int64_t input_of(size_t axis, int64_t output, int64_t tap) const {
    return output * stride[axis] - low[axis] + tap * dilation[axis];
  }
  // The taps of an output that lie in the input.
  Range taps(size_t axis, int64_t output, int64_t input_extent) const {
    const int64_t first = input_of(axis, output, 0);
    return {std::max<int64_t>(0, divide_up(-first, dilation[axis])),
            std::min(kernel[axis], divide_up(input_extent - first, dilation[axis]))};
  }
  // The outputs in `of` whose `tap` lies in the part `in` of the input.
  Range outputs(size_t axis, int64_t tap, const Range& in, const Range& of) const {
    const int64_t first = input_of(axis, 0, tap);
    return {std::max(of.begin, divide_up(in.begin - first, stride[axis])),
            std::min(of.end, divide_up(in.end - first, stride[axis]))};
  }

  std::array<int64_t, 3> kernel = {1, 1, 1}, stride = {1, 1, 1}, low = {}, dilation = {1, 1, 1};
};

// What the rows of a plane have in common: outputs `columns` of a row, and the windows over them.
// Computed once, since the divisions take longer than a row of a small plane does.
class ColumnBlock {
 public:
  // The outputs that have a tap in the row, and the input that the first of them has there.
  struct Tap {
    Range outputs;
    int64_t input = 0;
  };

  ColumnBlock(const Window& window, int64_t input_extent, const Range& its_columns)
      : columns(its_columns), window_(window), input_extent_(input_extent) {
    for (int64_t tap = 0; tap < std::min(kKeptTaps, window.kernel[2]); ++tap) {
      kept_[static_cast<size_t>(tap)] = compute(tap);
    }
    const int64_t first = std::min(compute(0).outputs.begin, columns.end);
    whole = {first, std::max(first, compute(window.kernel[2] - 1).outputs.end)};
  }

  Tap tap(int64_t index) const {
    return index < kKeptTaps ? kept_[static_cast<size_t>(index)] : compute(index);
  }

  Range columns;
  Range whole;  // The part of it whose windows lie in the row.

 private:
  static constexpr int64_t kKeptTaps = 8;

  Tap compute(int64_t tap) const {
    const Range outputs = window_.outputs(2, tap, {0, input_extent_}, columns);
    return {outputs, window_.input_of(2, outputs.begin, tap)};
  }

  const Window& window_;
  int64_t input_extent_;
  std::array<Tap, kKeptTaps> kept_;
};

// Calls body(row) for the rows of a plane that the window of output row (i, j) covers, in order:
// row is the number i * extent[1] + j of the input's.
template <typename Body>
void for_each_covered_row(const Window& w, const Planes& x, int64_t i, int64_t j,
                          const Body& body) {
  const Range depth = w.taps(0, i, x.extent[0]), rows = w.taps(1, j, x.extent[1]);
  for (int64_t a = depth.begin; a < depth.end; ++a) {
    for (int64_t b = rows.begin; b < rows.end; ++b) {
      body(w.input_of(0, i, a), w.input_of(1, j, b));
    }
  }
}

constexpr int64_t kPoolGrain = 8192;  // Elements of the input, below which a team costs more.

// Planes of `elements` each that are worth a thread.
inline int64_t plane_grain(int64_t elements) {
  return std::max<int64_t>(1, kPoolGrain / std::max<int64_t>(1, elements));
}

}  // namespace bp::kernels
