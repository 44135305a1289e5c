// Computes each direction of a convolution with matrix products of the weight and the windows of x,
// which are written out as columns.
//
//   columns (in_channels * kernel, chunk of the output)
//   y = weight columns      columns of grad_x = weight^T grad_y      grad_weight += grad_y
//   columns^T
//
// A chunk of the output bounds the memory that columns take, whatever the extents are.
#include <algorithm>

#include "backends/host_kernels/convolution.hpp"
#include "backends/host_kernels/gemm.hpp"

namespace bp::kernels {
namespace {

constexpr int64_t kColumnElements = 1 << 20;  // They are 8 MiB, which a last-level cache holds.

int64_t product(const std::array<int64_t, 3>& extents, int axes) {
  int64_t count = 1;
  for (int i = 0; i < axes; ++i) count *= extents[static_cast<size_t>(i)];
  return count;
}

// The extents of one group of one image.
struct Sizes {
  explicit Sizes(const Convolution& c)
      : taps(product(c.kernel, c.axes)),
        input(product(c.input, c.axes)),
        output(product(c.output, c.axes)),
        depth(c.in_channels * taps),
        chunk(std::clamp<int64_t>(kColumnElements / std::max<int64_t>(1, depth), 64,
                                  std::max<int64_t>(64, output))) {}
  int64_t taps, input, output, depth, chunk;
};

// Calls fn(position in the chunk, position in the input) for each output of [begin, end) whose
// window has tap `tap` inside the input.
template <typename Fn>
void for_each_inside(const Convolution& c, int64_t tap, int64_t begin, int64_t end, Fn&& fn) {
  std::array<int64_t, 3> shift{}, at{};
  int64_t rest_tap = tap, rest_at = begin;
  for (int i = c.axes; i-- > 0;) {
    const auto a = static_cast<size_t>(i);
    shift[a] = rest_tap % c.kernel[a] * c.dilation[a] - c.low[a];
    at[a] = rest_at % c.output[a];
    rest_tap /= c.kernel[a];
    rest_at /= c.output[a];
  }
  const auto last = static_cast<size_t>(c.axes - 1);
  for (int64_t position = begin; position < end;) {
    // This is one row of the last axis, or the chunk's part of the row.
    const int64_t count = std::min(c.output[last] - at[last], end - position);
    int64_t source = 0;
    bool is_inside = true;
    for (size_t a = 0; a < last; ++a) {
      const int64_t index = at[a] * c.stride[a] + shift[a];
      is_inside = is_inside && index >= 0 && index < c.input[a];
      source = (source + index) * c.input[a + 1];
    }
    for (int64_t i = 0; i < count && is_inside; ++i) {
      const int64_t index = (at[last] + i) * c.stride[last] + shift[last];
      if (index >= 0 && index < c.input[last]) fn(position + i - begin, source + index);
    }
    position += count;
    at[last] += count;
    for (size_t a = last; a > 0 && at[a] == c.output[a]; --a) {
      at[a] = 0;
      ++at[a - 1];
    }
  }
}

// Writes the windows of the outputs [begin, begin + count) to columns (depth, count).
void write_columns(const Convolution& c, const Sizes& sizes, const double* x, int64_t begin,
                   int64_t count, double* columns, int thread_count) {
  parallel_for(thread_count, sizes.depth, std::max<int64_t>(1, 32768 / count),
               [&](int64_t first, int64_t last) {
                 for (int64_t row = first; row < last; ++row) {
                   const double* const plane = x + row / sizes.taps * sizes.input;
                   double* const to = columns + row * count;
                   std::fill_n(to, count, 0.0);
                   for_each_inside(c, row % sizes.taps, begin, begin + count,
                                   [&](int64_t i, int64_t source) { to[i] = plane[source]; });
                 }
               });
}

// Adds columns, which are gradients, to their windows. Each thread works on its own channels.
void add_columns(const Convolution& c, const Sizes& sizes, const double* columns, int64_t begin,
                 int64_t count, double* x, int thread_count) {
  parallel_for(thread_count, c.in_channels, std::max<int64_t>(1, 32768 / (count * sizes.taps)),
               [&](int64_t first, int64_t last) {
                 for (int64_t row = first * sizes.taps; row < last * sizes.taps; ++row) {
                   double* const plane = x + row / sizes.taps * sizes.input;
                   const double* const from = columns + row * count;
                   for_each_inside(c, row % sizes.taps, begin, begin + count,
                                   [&](int64_t i, int64_t source) { plane[source] += from[i]; });
                 }
               });
}

template <typename T>
T* at(const View& view, int64_t element) {
  return reinterpret_cast<T*>(view.address) + element;
}

// Computes one group of one image, chunk by chunk.
void run_group(const Convolution& c, const Sizes& sizes, int64_t image, int64_t group,
               double* columns, std::byte* workspace, int thread_count) {
  const int64_t plane = image * c.groups + group;
  double* const x = at<double>(c.x, plane * c.in_channels * sizes.input);
  double* const y = at<double>(c.y, plane * c.out_channels * sizes.output);
  double* const w = at<double>(c.weight, group * c.out_channels * sizes.depth);
  const auto dense = [](double* data, int64_t rows, int64_t cols, int64_t row_stride) {
    return Matrix{reinterpret_cast<std::byte*>(data), BP_F64, rows, cols, row_stride, 1};
  };
  const Matrix weight = dense(w, c.out_channels, sizes.depth, sizes.depth);
  for (int64_t begin = 0; begin < sizes.output; begin += sizes.chunk) {
    const int64_t count = std::min(sizes.chunk, sizes.output - begin);
    const Matrix part = dense(y + begin, c.out_channels, count, sizes.output);
    const Matrix windows = dense(columns, sizes.depth, count, count);
    switch (c.direction) {
      case Direction::kForward:
        write_columns(c, sizes, x, begin, count, columns, thread_count);
        run_gemm({weight, windows, part, {}, c.has_bias}, workspace, thread_count);
        break;
      case Direction::kBackwardInput:
        run_gemm({weight.transposed(), part, windows, {}, false}, workspace, thread_count);
        add_columns(c, sizes, columns, begin, count, x, thread_count);
        break;
      case Direction::kBackwardWeight:
        write_columns(c, sizes, x, begin, count, columns, thread_count);
        run_gemm({part, windows.transposed(), weight, {}, true}, workspace, thread_count);
        break;
    }
  }
}

// Fills the result with the bias or with zeros, to which the products are added.
void prepare_result(const Convolution& c, const Sizes& sizes) {
  const View& result = c.result();
  if (c.direction != Direction::kForward) {
    std::fill_n(at<double>(result, 0), element_count(result), 0.0);
  } else if (c.has_bias) {
    for (int64_t plane = 0; plane < c.batch * c.groups * c.out_channels; ++plane) {
      const double bias = *at<double>(c.bias, plane % (c.groups * c.out_channels));
      std::fill_n(at<double>(result, plane * sizes.output), sizes.output, bias);
    }
  }
}

uint64_t columns_size_bytes(const Sizes& sizes) {
  return static_cast<uint64_t>(sizes.depth * sizes.chunk) * sizeof(double);
}

}  // namespace

uint64_t convolution_f64_workspace_size_bytes(const Convolution& c, int thread_count) {
  const Sizes sizes(c);
  uint64_t size_bytes = 0;
  reserve_bytes(columns_size_bytes(sizes), size_bytes);
  // The product's own workspace is largest for the largest extents of a direction.
  const int64_t most = std::max({sizes.depth, c.out_channels, sizes.chunk});
  const Matrix any = {nullptr, BP_F64, most, most, most, 1};
  reserve_bytes(gemm_workspace_size_bytes({any, any, any, {}, false}, thread_count), size_bytes);
  return size_bytes;
}

void run_convolution_f64(const Convolution& c, std::byte* workspace, int thread_count) {
  const Sizes sizes(c);
  uint64_t columns_end = 0;
  reserve_bytes(columns_size_bytes(sizes), columns_end);
  prepare_result(c, sizes);
  for (int64_t image = 0; image < c.batch; ++image) {
    for (int64_t group = 0; group < c.groups; ++group) {
      run_group(c, sizes, image, group, reinterpret_cast<double*>(workspace),
                workspace + columns_end, thread_count);
    }
  }
}

}  // namespace bp::kernels
