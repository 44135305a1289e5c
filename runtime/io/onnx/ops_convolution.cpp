// Convolutions, also transposed and quantised ones.
#include <algorithm>

#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/quantized.hpp"
#include "runtime/io/onnx/window.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

Ints spatial_of(const Tensor& x) { return {x.shape().begin() + 2, x.shape().end()}; }

Window window_of(const Call& call, const Tensor& x, const Tensor& weight) {
  if (weight.ndim() != x.ndim()) {
    call.refuse("the weight has " + std::to_string(weight.ndim()) + " axes; input 0 has " +
                std::to_string(x.ndim()));
  }
  return read_window(call, x.shape(), spatial_of(weight));
}

Tensor convolve(const Call& call, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Window window = window_of(call, x, weight);
  return convolution(x, weight, bias, window.strides, window.pads, window.dilations,
                     call.integer("group", 1));
}

Values conv(const Call& call) {
  return {convolve(call, call.input(0), call.input(1), call.optional(2))};
}

Values conv_integer(const Call& call) {
  const Tensor x = centred(call, 0, 2, 1, BP_F64);
  const Tensor weight = centred(call, 1, 3, 0, BP_F64);
  return {convolve(call, x, weight, Tensor()).to(BP_I32)};
}

// x, its scale and zero point; the weight, its scale and zero point; the scale and zero point of y;
// the bias, whose scale is that of x times that of the weight.
Values qlinear_conv(const Call& call) {
  const Tensor x = centred(call, 0, 2, 1, BP_F64);
  const Tensor weight = centred(call, 3, 5, 0, BP_F64);
  const Tensor bias = call.has(8) ? call.input(8).to(BP_F64) : Tensor();
  const Tensor product = convolve(call, x, weight, bias);
  Tensor scale = call.input(4).to(BP_F64);
  scale = scale.numel() == 1 ? scale.reshape({}) : align_axis(scale, 1, x.ndim());
  const Tensor factor = mul(scale, call.input(1).to(BP_F64).reshape({}));
  const Tensor real = div(mul(product, factor), call.input(6).to(BP_F64).reshape({}));
  return {saturated(real, call.input(7).reshape({}), call.input(7).dtype())};
}

// ---- Transposed --------------------------------------------------------------------------------

// The extents of the result, the elements that are cut off at both ends of the whole result, and
// those that are added behind it.
struct Transposed {
  Ints extents, pads, extra;
};

// Cuts as much as the wanted extent asks for. An extent that is a bit too large, by less than a
// stride, has zeros at its end.
void cut_to(const Call& call, const Window& window, const Ints& natural, Transposed& out) {
  const size_t count = window.axis_count();
  const bool is_upper = call.text("auto_pad", "NOTSET") == "SAME_UPPER";
  for (size_t i = 0; i < count; ++i) {
    const int64_t total = std::max<int64_t>(natural[i] - out.extents[i], 0);
    out.pads[i] = is_upper ? total / 2 : total - total / 2;
    out.pads[count + i] = total - out.pads[i];
    out.extra[i] += std::max<int64_t>(out.extents[i] - natural[i], 0);
  }
}

Transposed transposed_of(const Call& call, const Tensor& x, const Window& window) {
  const size_t count = window.axis_count();
  const Ints extra = call.integers("output_padding", Ints(count));
  if (extra.size() != count) {
    call.refuse("attribute 'output_padding' has " + std::to_string(extra.size()) +
                " numbers; allowed: " + std::to_string(count));
  }
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  const bool is_same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  Transposed out{Ints(count), window.pads, extra};
  Ints natural(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t inputs = x.shape(static_cast<int64_t>(i) + 2);
    natural[i] = (inputs - 1) * window.strides[i] + window.reach(i) + extra[i];
    out.extents[i] =
        is_same ? inputs * window.strides[i] : natural[i] - window.pads[i] - window.pads[count + i];
  }
  if (call.has("output_shape")) out.extents = call.integers("output_shape", {});
  if (out.extents.size() == count + 2)
    out.extents.erase(out.extents.begin(), out.extents.begin() + 2);
  if (out.extents.size() != count) {
    call.refuse("attribute 'output_shape' has " + std::to_string(out.extents.size()) +
                " numbers; allowed: " + std::to_string(count));
  }
  if (is_same || call.has("output_shape")) cut_to(call, window, natural, out);
  for (size_t i = 0; i < count; ++i) {
    if (out.extra[i] < window.strides[i]) continue;
    call.unsupported("spatial axis " + std::to_string(i) + " has " + std::to_string(out.extra[i]) +
                     " elements behind the windows, whose stride is " +
                     std::to_string(window.strides[i]));
  }
  return out;
}

Values conv_transpose(const Call& call) {
  const Tensor x = call.input(0);
  const Tensor weight = call.input(1);
  const Window window = window_of(call, x, weight);
  const Transposed out = transposed_of(call, x, window);
  return {convolution_transpose(x, weight, call.optional(2), window.strides, out.pads, out.extra,
                                window.dilations, call.integer("group", 1))};
}

constexpr const char* kWindow = "auto_pad dilations group kernel_shape pads strides";

constexpr OpRow kRows[] = {
    {"Conv", 1, conv, kWindow, OnnxRoute::kOp},
    {"ConvInteger", 10, conv_integer, kWindow},
    {"ConvTranspose", 1, conv_transpose,
     "auto_pad dilations group kernel_shape output_padding output_shape pads strides",
     OnnxRoute::kOp},
    {"QLinearConv", 10, qlinear_conv, kWindow},
};

}  // namespace

std::span<const OpRow> convolution_ops() { return kRows; }

}  // namespace bp::onnx
