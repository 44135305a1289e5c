// Ops over windows: IM2COL, pools, convolutions. Windows of a padded tensor are a view of it: the
// axes of a window have strides of their own.
#include <algorithm>

#include "lower.h"

namespace bpg {
namespace {

// Pads an axis with `value` at both ends.
View padded(Emitter& e, const View& x, int axis, int64_t before, int64_t after, double value) {
  if (before == 0 && after == 0) return x;
  Shape shape = x.dims();
  shape[axis] += before + after;
  const View y = e.temporary(x.dtype, shape);
  e.fill(y, value);
  e.copy(x, slice(y, axis, before, before + x.shape[axis]));
  return y;
}

// Axis `axis` becomes `count` windows of `size` elements, `step` apart; those of a window are
// `dilation` apart. The axis of the elements is put behind all others.
View windows(const View& x, int axis, int64_t count, int64_t step, int64_t size, int64_t dilation) {
  View y = unsqueeze(x, static_cast<int>(x.ndim));
  y.shape[x.ndim] = size;
  y.strides[x.ndim] = x.strides[axis] * dilation;
  y.shape[axis] = count;
  y.strides[axis] = x.strides[axis] * step;
  return y;
}

// The padding that the last of `count` windows needs behind `extent` elements.
int64_t behind(int64_t extent, int64_t before, int64_t count, int64_t step, int64_t reach) {
  return std::max<int64_t>((count - 1) * step + reach - before - extent, 0);
}

struct Steps {
  int64_t stride, padding, dilation;
};

}  // namespace

void lower_ssm_conv(Emitter& e, const ggml_tensor* node) {
  const View x = squeeze(e.tensor(node->src[0]), 0);                   // (sequences, inner, time)
  const View weight = squeeze(squeeze(e.tensor(node->src[1]), 0), 0);  // (inner, width)
  const View y = squeeze(e.tensor(node), 0);                           // (sequences, tokens, inner)
  const View parts = permute(windows(x, 2, y.shape[1], 1, weight.shape[1], 1), {0, 2, 1, 3});
  const View factors = unsqueeze(unsqueeze(weight, 0), 0);
  e.sum(e.binary(BP_OP_MUL, parts, expand_to(factors, parts.dims())), {3}, y, false);
}

void lower_im2col(Emitter& e, const ggml_tensor* node) {
  const bool is_2d = int_param(node, 6) == 1;
  const ggml_tensor* const kernel = node->src[0];
  View x = e.tensor(node->src[1]), y = e.tensor(node);
  // One row of pictures for the other form: (batch, channels, 1, width).
  if (!is_2d) x = permute(x, {1, 2, 0, 3});
  const Steps w{int_param(node, 0), int_param(node, 2), int_param(node, 4)};
  const Steps h =
      is_2d ? Steps{int_param(node, 1), int_param(node, 3), int_param(node, 5)} : Steps{1, 0, 1};
  const int64_t kernel_w = kernel->ne[0], kernel_h = is_2d ? kernel->ne[1] : 1;
  const int64_t rows = is_2d ? y.shape[1] : 1, columns = y.shape[2];
  if (!is_2d) y = unsqueeze(squeeze(y, 0), 1);  // (batch, 1, columns, channels * width)
  x = padded(e, x, 2, h.padding,
             behind(x.shape[2], h.padding, rows, h.stride, h.dilation * (kernel_h - 1) + 1), 0);
  x = padded(e, x, 3, w.padding,
             behind(x.shape[3], w.padding, columns, w.stride, w.dilation * (kernel_w - 1) + 1), 0);
  View all = windows(x, 2, rows, h.stride, kernel_h, h.dilation);
  all = windows(all, 3, columns, w.stride, kernel_w, w.dilation);
  // (batch, channels, rows, columns, kernel_h, kernel_w)
  const View out = split(split(y, 3, kernel_w * kernel_h), 4, kernel_w);
  e.copy(permute(all, {0, 2, 3, 1, 4, 5}), out);
}

namespace {

// One over the elements of each window that are no padding; 0 for a window of padding alone.
std::vector<float> shares(int64_t extent, int64_t count, int64_t padding, int64_t stride,
                          int64_t size) {
  std::vector<float> list;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = i * stride - padding;
    const int64_t inside =
        std::min(first + size, extent) - std::min(std::max<int64_t>(first, 0), extent);
    list.push_back(inside > 0 ? 1.0f / static_cast<float>(inside) : 0.0f);
  }
  return list;
}

}  // namespace

void lower_pool(Emitter& e, const ggml_tensor* node) {
  const bool is_2d = node->op == GGML_OP_POOL_2D;
  const bool is_max = int_param(node, 0) == GGML_OP_POOL_MAX;
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  const auto pair = [&](int index, int64_t other) {
    return is_2d ? Shape{int_param(node, index + 1), int_param(node, index)}
                 : Shape{other, int_param(node, 1 + (index - 1) / 2)};
  };
  const Shape kernel = pair(1, 1), stride = pair(3, 1), padding = pair(5, 0);
  View all = x;
  for (const int i : {0, 1}) {
    const int axis = 2 + i;
    all = padded(e, all, axis, padding[i],
                 behind(x.shape[axis], padding[i], y.shape[axis], stride[i], kernel[i]),
                 is_max ? -3.4028234663852886e38 : 0);
  }
  all = windows(all, 2, y.shape[2], stride[0], kernel[0], 1);
  all = windows(all, 3, y.shape[3], stride[1], kernel[1], 1);
  if (!is_2d && !is_max) {
    // This average leaves padding out, and that of two dimensions counts it.
    View sums = e.sum(e.cast(all, BP_F32), {4, 5});
    sums = squeeze(squeeze(sums, 5), 4);
    const std::vector<float> factors =
        shares(x.shape[3], y.shape[3], padding[1], stride[1], kernel[1]);
    View row;
    reshape_view(e.constant(factors), {1, 1, 1, y.shape[3]}, row);
    return e.binary(BP_OP_MUL, sums, expand_to(row, y.dims()), y);
  }
  static constexpr int64_t kWindow[] = {4, 5};
  bp_mean_args args{};
  args.x = e.arg(all);
  args.y = e.arg(y);
  args.axes_count = 2;
  args.axes = kWindow;
  static_assert(sizeof(bp_mean_args) == sizeof(bp_amax_args));
  e.launch(is_max ? uint32_t{BP_OP_AMAX} : uint32_t{BP_OP_MEAN}, args);
}

void lower_im2col_3d(Emitter& e, const ggml_tensor* node) {
  const ggml_tensor* const kernel = node->src[0];
  const int64_t channels = int_param(node, 9);
  View x = split(e.tensor(node->src[1]), 0, channels);  // (batch, channels, depth, height, width)
  View y = e.tensor(node);
  y = split(y, 0, y.shape[0] / x.shape[0]);  // (batch, depth, height, width, elements)
  for (int i = 0; i < 3; ++i) {
    const int axis = 4 - i;
    const Steps step{int_param(node, i), int_param(node, 3 + i), int_param(node, 6 + i)};
    const int64_t reach = step.dilation * (kernel->ne[i] - 1) + 1;
    x = padded(e, x, axis, step.padding,
               behind(x.shape[axis], step.padding, y.shape[axis - 1], step.stride, reach), 0);
  }
  for (int i = 2; i >= 0; --i) {
    x = windows(x, 4 - i, y.shape[3 - i], int_param(node, i), kernel->ne[i],
                int_param(node, 6 + i));
  }
  // (batch, channels, depth, height, width, and the three axes of a window): 8 axes. The result
  // would need as many, so its channels are copied one after the other.
  const int64_t volume = kernel->ne[0] * kernel->ne[1] * kernel->ne[2];
  for (int64_t channel = 0; channel < channels; ++channel) {
    const View from = squeeze(slice(x, 1, channel, channel + 1), 1);
    View to = slice(y, 4, channel * volume, (channel + 1) * volume);
    to = split(split(to, 4, kernel->ne[0] * kernel->ne[1]), 5, kernel->ne[0]);
    e.copy(from, to);
  }
}

namespace {

struct Convolution {
  View x, weight, y;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
};

void convolve(Emitter& e, Convolution& c) {
  // The same before an axis and behind it.
  const std::vector<int64_t> before = c.padding;
  c.padding.insert(c.padding.end(), before.begin(), before.end());
  if (c.weight.dtype != c.x.dtype) c.weight = e.cast(c.weight, c.x.dtype);
  bp_convolution_args args{};
  args.x = e.arg(c.x);
  args.weight = e.arg(c.weight);
  args.y = e.arg(c.y);
  args.stride_count = args.dilation_count = c.stride.size();
  args.stride = c.stride.data();
  args.padding_count = c.padding.size();
  args.padding = c.padding.data();
  args.dilation = c.dilation.data();
  args.groups = c.groups;
  e.launch(BP_OP_CONVOLUTION, args);
}

}  // namespace

void lower_convolution(Emitter& e, const ggml_tensor* node) {
  const auto axes = [&](int first) {
    return std::vector<int64_t>{int_param(node, first + 1), int_param(node, first)};
  };
  Convolution c{
      e.tensor(node->src[1]), e.tensor(node->src[0]), e.tensor(node), axes(0), axes(2), axes(4)};
  if (node->op == GGML_OP_CONV_2D_DW) c.groups = c.x.shape[1];
  convolve(e, c);
}

void lower_convolution_3d(Emitter& e, const ggml_tensor* node) {
  const auto axes = [&](int first) {
    return std::vector<int64_t>{int_param(node, first + 2), int_param(node, first + 1),
                                int_param(node, first)};
  };
  const int64_t channels = int_param(node, 9), results = int_param(node, 11);
  Convolution c{split(e.tensor(node->src[1]), 0, channels),
                split(e.tensor(node->src[0]), 0, channels),
                split(e.tensor(node), 0, results),
                axes(0),
                axes(3),
                axes(6)};
  convolve(e, c);
}

void lower_convolution_transpose(Emitter& e, const ggml_tensor* node) {
  View weight = e.tensor(node->src[0]), x = e.tensor(node->src[1]), y = e.tensor(node);
  if (node->op == GGML_OP_CONV_TRANSPOSE_1D) {
    weight = squeeze(weight, 0);
    x = squeeze(x, 0);
    y = squeeze(y, 0);
  }
  if (weight.dtype != x.dtype) weight = e.cast(weight, x.dtype);
  const size_t count = x.ndim - 2;
  const std::vector<int64_t> stride(count, int_param(node, 0)), ones(count, 1), zeros(2 * count, 0);
  bp_convolution_transpose_args args{};
  args.x = e.arg(x);
  args.weight = e.arg(weight);
  args.y = e.arg(y);
  args.stride_count = args.dilation_count = args.output_padding_count = count;
  args.stride = stride.data();
  args.padding_count = 2 * count;
  args.padding = args.output_padding = zeros.data();
  args.dilation = ones.data();
  args.groups = 1;
  e.launch(BP_OP_CONVOLUTION_TRANSPOSE, args);
}

}  // namespace bpg
