// Windows that slide over the planes of a tensor, for max_pool and avg_pool, and what all operators
// of planes share. One channel of one image is a plane. A plane is computed by one thread, so
// results depend on the shape alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {

// Returns the number of elements of one channel. It does not read the buffer, because supports()
// and workspace_size() may read shapes alone.
inline int64_t plane_size(const bp_tensor& tensor) {
  int64_t size = 1;
  for (uint32_t i = 2; i < tensor.ndim; ++i) size *= tensor.shape[i];
  return size;
}

// A tensor (batch, channels, spatial) with three spatial axes. If the tensor has fewer, the first
// ones have extent 1. Strides are in elements.
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

  // Returns whether the elements of a plane lie in row-major order without gaps.
  bool is_dense() const {
    return (extent[2] <= 1 || stride[2] == 1) && (extent[1] <= 1 || stride[1] == extent[2]) &&
           (extent[0] <= 1 || stride[0] == extent[1] * extent[2]);
  }

  // Returns the address of element 0 of a plane, or NULL if there are no elements.
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

// Returns a / b, rounded up. It avoids the division if b is 1, which is the usual case, because a
// division takes longer than a row of a small plane.
inline int64_t divide_up(int64_t a, int64_t b) {
  if (b == 1) return a;
  return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

// Element `tap` of the window of output o is o * stride - low + tap * dilation of the input.
struct Window {
  Window() = default;
  // Makes a window. If `dilation` is NULL, it is 1 along every axis.
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
  // Returns the taps of an output that lie in the input.
  Range taps(size_t axis, int64_t output, int64_t input_extent) const {
    const int64_t first = input_of(axis, output, 0);
    return {std::max<int64_t>(0, divide_up(-first, dilation[axis])),
            std::min(kernel[axis], divide_up(input_extent - first, dilation[axis]))};
  }
  // Return the number of input rows or columns that the windows of `count` outputs cover.
  int64_t rows_of(int64_t count) const {
    return (count - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1;
  }
  int64_t columns_of(int64_t count) const {
    return (count - 1) * stride[2] + (kernel[2] - 1) * dilation[2] + 1;
  }

  std::array<int64_t, 3> kernel = {1, 1, 1}, stride = {1, 1, 1}, low = {}, dilation = {1, 1, 1};
};

// A row of the outputs of a plane: its indices along the first two axes.
struct OutputRow {
  int64_t i, j;

  int64_t offset_in(const Planes& y) const { return i * y.stride[0] + j * y.stride[1]; }
};

// Outputs that lie side by side in a row, and the line of columns that their windows cover:
//
//   padding | columns `inputs` of an input row | padding
//           ^ element `offset` of the line              ^ element `size`
struct LineBlock {
  LineBlock(const Window& window, int64_t input_extent, const Range& its_outputs)
      : outputs(its_outputs), size(window.columns_of(its_outputs.size())) {
    const int64_t first = window.input_of(2, outputs.begin, 0);
    inputs.begin = std::clamp<int64_t>(first, 0, input_extent);
    inputs.end = std::clamp<int64_t>(first + size, inputs.begin, input_extent);
    offset = std::clamp<int64_t>(inputs.begin - first, 0, size);
  }

  bool has_padding() const { return inputs.size() != size; }

  Range outputs, inputs;
  int64_t offset = 0, size = 0;
};

// Returns the number of outputs of a block. Their line stays in the first-level cache, unless one
// output alone needs more.
inline int64_t block_outputs(const Window& window, int64_t outputs) {
  constexpr int64_t kLineElements = 2048;
  const int64_t more = (kLineElements - window.columns_of(1)) / window.stride[2];
  return std::clamp<int64_t>(1 + more, 1, std::max<int64_t>(1, outputs));
}

// Returns the number of elements of memory for a line. Two vectors more than the line are needed,
// because whole vectors are read behind its end.
inline int64_t line_elements(const Window& window, int64_t outputs) {
  constexpr int64_t kVectorElements = 16, kTwoVectors = 2 * kVectorElements;
  const int64_t columns = window.columns_of(block_outputs(window, outputs));
  return (columns + kTwoVectors + kVectorElements - 1) / kVectorElements * kVectorElements;
}

// Calls body(a, b) for the rows (a, b) of a plane that the windows of a row of outputs cover, in
// order.
template <typename Body>
void for_each_covered_row(const Window& w, const Planes& x, const OutputRow& at, const Body& body) {
  const Range depth = w.taps(0, at.i, x.extent[0]), rows = w.taps(1, at.j, x.extent[1]);
  for (int64_t a = depth.begin; a < depth.end; ++a) {
    for (int64_t b = rows.begin; b < rows.end; ++b) {
      body(w.input_of(0, at.i, a), w.input_of(1, at.j, b));
    }
  }
}

constexpr int64_t kPoolGrain = 8192;  // With fewer input elements a team costs more.

// Returns how many planes of `elements` elements are worth a thread.
inline int64_t plane_grain(int64_t elements) {
  return std::max<int64_t>(1, kPoolGrain / std::max<int64_t>(1, elements));
}

// Returns the bytes that a thread has in the workspace for `elements` numbers of 4 bytes, or of 8
// if `dtype` is f64.
inline uint64_t plane_memory_bytes(int64_t elements, bp_dtype dtype) {
  uint64_t size_bytes = 0;
  reserve_bytes(static_cast<uint64_t>(elements * (dtype == BP_F64 ? 8 : 4)), size_bytes);
  return size_bytes;
}

// Calls run(begin, end, memory) for ranges of the planes of `result`, which has none if it has no
// elements. A thread has `of_thread_bytes` of memory in the workspace, and a plane costs as much as
// reading `work` elements.
template <typename Run>
bp_status submit_planes(const Launch& launch, const bp_tensor& result, int64_t work,
                        uint64_t of_thread_bytes, const Run& run) {
  const int64_t planes = element_count(result) == 0 ? 0 : result.shape[0] * result.shape[1];
  return launch.submit([=, threads = launch.thread_count(), memory = launch.workspace()] {
    parallel_for(threads, planes, plane_grain(work), [&](int64_t begin, int64_t end) {
      run(begin, end, memory + static_cast<uint64_t>(thread_number()) * of_thread_bytes);
    });
  });
}

// The parts of max_pool, which also computes adaptive_max_pool if its windows are even.
bp_reason max_pool_supports(const bp_max_pool_args& args);
uint64_t max_pool_workspace(const bp_max_pool_args& args, const Env& env);
bp_status max_pool_launch(const bp_max_pool_args& args, Launch& launch);

}  // namespace bp::kernels
