// Pools: over windows, and over all spatial axes.
#include <algorithm>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/window.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

Ints with_excess(const Window& window) {
  Ints pads = window.pads;
  for (size_t i = 0; i < window.axis_count(); ++i) {
    pads[window.axis_count() + i] += window.ceil_excess[i];
  }
  return pads;
}

// Turns indices that are flat over the spatial axes into the order in which the first spatial axis
// runs fastest.
Tensor column_major(Tensor indices, IntList spatial) {
  Tensor result = zeros(indices.shape(), BP_I64, indices.device());
  std::vector<int64_t> weights(spatial.size(), 1);
  for (size_t i = 1; i < weights.size(); ++i) weights[i] = weights[i - 1] * spatial[i - 1];
  for (size_t i = spatial.size(); i-- > 0;) {
    result = result + remainder(indices, spatial[i]) * weights[i];
    indices = floor_divide(indices, spatial[i]);
  }
  return result;
}

// Counts indices over the whole of x, (N, C, spatial).
Tensor over_all(const Tensor& indices, const Tensor& x) {
  const int64_t plane = x.numel() / (x.shape(0) * x.shape(1));
  const Tensor planes = count_up(x.shape(0) * x.shape(1), x.device()) * plane;
  Ints shape(static_cast<size_t>(x.ndim()), 1);
  shape[0] = x.shape(0);
  shape[1] = x.shape(1);
  return indices + planes.reshape(shape);
}

Values run_max_pool(const Call& call) {
  const Tensor x = call.input(0);
  const Window window = read_window(call, x.shape());
  const Tensor wide = is_plain_float(x.dtype()) ? x : x.to(BP_F32);
  Tensor indices;
  const Tensor y = max_pool(wide, window.kernel, window.strides, with_excess(window),
                            window.dilations, call.wants(1) ? &indices : nullptr);
  if (!call.wants(1)) return {y.to(x.dtype())};
  if (call.flag("storage_order", false)) {
    indices = column_major(indices, {x.shape().data() + 2, x.shape().size() - 2});
  }
  return {y.to(x.dtype()), over_all(indices, x)};
}

Tensor zero_padded(Tensor x, const Window& window) {
  const Tensor zero = scalar_like(0, x);
  const size_t count = window.axis_count();
  for (size_t i = 0; i < count; ++i) {
    const auto axis = static_cast<int64_t>(i) + 2;
    if (window.pads[i] + window.pads[count + i] == 0) continue;
    x = pad_axis(x, axis, window.pads[i], window.pads[count + i], zero);
  }
  return x;
}

bool is_dilated(const Window& window) {
  return std::ranges::any_of(window.dilations, [](int64_t n) { return n != 1; });
}

// Returns the sums of the windows: a convolution of each channel with ones. `pads` is given for
// what lies around x, which adds nothing.
Tensor window_sums(const Tensor& x, const Window& window, const Ints& pads) {
  Ints planes = x.shape().to_vector(), kernel = window.kernel;
  planes[0] *= planes[1];
  planes[1] = 1;
  kernel.insert(kernel.begin(), {1, 1});
  const Tensor sums = convolution(x.reshape(planes), ones(kernel, x.dtype(), x.device()), Tensor(),
                                  window.strides, pads, window.dilations, 1);
  Ints shape = sums.shape().to_vector();
  shape[0] = x.shape(0);
  shape[1] = x.shape(1);
  return sums.reshape(shape);
}

Ints excess_alone(const Window& window) {
  Ints pads(2 * window.axis_count());
  std::ranges::copy(window.ceil_excess,
                    pads.begin() + static_cast<std::ptrdiff_t>(window.axis_count()));
  return pads;
}

// Divides the sum of each window by the number of its elements that count.
Tensor dilated_average(const Tensor& x, const Window& window, bool counts_pads) {
  const Tensor padded = zero_padded(x, window);
  Ints counted = counts_pads ? padded.shape().to_vector() : x.shape().to_vector();
  counted[0] = counted[1] = 1;
  const Tensor here = ones(counted, x.dtype(), x.device());
  const Ints pads = excess_alone(window);
  return window_sums(padded, window, pads) /
         window_sums(counts_pads ? here : zero_padded(here, window), window, pads);
}

// Pads may count as zeros, but what lies behind them never counts.
Tensor average(const Tensor& x, const Window& window, bool counts_pads) {
  if (is_dilated(window)) return dilated_average(x, window, counts_pads);
  bool has_excess = false;
  for (const int64_t excess : window.ceil_excess) has_excess |= excess > 0;
  if (!counts_pads || !has_excess) {
    return avg_pool(x, window.kernel, window.strides, with_excess(window), counts_pads);
  }
  return avg_pool(zero_padded(x, window), window.kernel, window.strides, excess_alone(window),
                  false);
}

Values average_pool(const Call& call) {
  const Tensor x = call.input(0);
  const Window window = read_window(call, x.shape());
  return {average(x, window, call.flag("count_include_pad", false))};
}

// The norm of a window is that of its mean times the number of its elements.
Values lp_pool(const Call& call) {
  const Tensor x = call.input(0);
  const Window window = read_window(call, x.shape());
  const auto p = static_cast<double>(call.integer("p", 2));
  if (is_dilated(window)) {
    const Tensor powers = zero_padded(pow(abs(x), p), window);
    return {pow(window_sums(powers, window, excess_alone(window)), 1 / p)};
  }
  int64_t count = 1;
  for (const int64_t extent : window.kernel) count *= extent;
  const Tensor means = avg_pool(zero_padded(pow(abs(x), p), window), window.kernel, window.strides,
                                with_excess({window.kernel, window.strides, window.dilations,
                                             Ints(window.pads.size()), window.ceil_excess}));
  return {pow(means * static_cast<double>(count), 1 / p)};
}

// ---- Over all spatial axes ---------------------------------------------------------------------

Values global_average_pool(const Call& call) {
  const Tensor x = call.input(0);
  return {mean(x, all_axes(x.ndim(), 2), true)};
}

Values global_max_pool(const Call& call) {
  const Tensor x = call.input(0);
  return {amax(x, all_axes(x.ndim(), 2), true)};
}

Values global_lp_pool(const Call& call) {
  const Tensor x = call.input(0);
  const auto p = static_cast<double>(call.integer("p", 2));
  return {norm(x, all_axes(x.ndim(), 2), p, true)};
}

// ---- The inverse -------------------------------------------------------------------------------

// Indices count over a result without padding; a larger output_shape adds zeros behind it.
Values max_unpool(const Call& call) {
  const Tensor x = call.input(0);
  const Window window = read_window(call, x.shape());
  Ints shape = x.shape().to_vector();
  int64_t total = shape[0] * shape[1];
  for (size_t i = 0; i < window.axis_count(); ++i) {
    shape[i + 2] = (shape[i + 2] - 1) * window.strides[i] + window.kernel[i] - window.pads[i] -
                   window.pads[window.axis_count() + i];
    total *= shape[i + 2];
  }
  const Tensor flat = zeros({total}, x.dtype(), x.device());
  const Tensor places = call.input(1).reshape({x.numel()});
  Tensor y = scatter(flat, places, x.reshape({x.numel()}), 0).reshape(shape);
  if (!call.has(2)) return {y};
  const Ints wanted = call.ints(2);
  if (wanted.size() != shape.size()) call.refuse("input 2 has another rank than input 0");
  for (size_t i = 0; i < shape.size(); ++i) {
    if (wanted[i] < shape[i]) call.refuse("the output_shape is less than what the windows fill");
    y = pad_axis(y, static_cast<int64_t>(i), 0, wanted[i] - shape[i], scalar_like(0, y));
  }
  return {y};
}

constexpr OpRow kRows[] = {
    {"AveragePool", 1, average_pool,
     "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides", OnnxRoute::kOp},
    {"GlobalAveragePool", 1, global_average_pool, "", OnnxRoute::kOp},
    {"GlobalLpPool", 2, global_lp_pool, "p", OnnxRoute::kOp},
    {"GlobalMaxPool", 1, global_max_pool, "", OnnxRoute::kOp},
    {"LpPool", 2, lp_pool, "auto_pad ceil_mode dilations kernel_shape p pads strides"},
    {"MaxPool", 1, run_max_pool,
     "auto_pad ceil_mode dilations kernel_shape pads storage_order strides", OnnxRoute::kOp},
    {"MaxUnpool", 9, max_unpool, "kernel_shape pads strides"},
};

}  // namespace

std::span<const OpRow> pooling_ops() { return kRows; }

}  // namespace bp::onnx
