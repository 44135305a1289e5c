// Padding: with a constant, or with elements of the tensor itself.
#include <algorithm>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

// Returns the place in an axis of `extent` elements that place `i` of the padded axis repeats.
int64_t source_of(const Call& call, const std::string& mode, int64_t i, int64_t extent) {
  const auto modulo = [](int64_t a, int64_t b) { return (a % b + b) % b; };
  if (mode == "edge") return std::clamp<int64_t>(i, 0, extent - 1);
  if (mode == "wrap") return modulo(i, extent);
  if (mode != "reflect") {
    call.refuse("attribute 'mode' is '" + mode + "'; allowed: constant, edge, reflect and wrap");
  }
  if (extent == 1) return 0;
  const int64_t place = modulo(i, 2 * (extent - 1));
  return place < extent ? place : 2 * (extent - 1) - place;
}

Tensor repeat_around(const Call& call, const Tensor& x, int64_t axis, int64_t before, int64_t after,
                     const std::string& mode) {
  const int64_t extent = x.shape(axis);
  if (extent == 0) call.refuse("an axis without elements cannot be padded in mode " + mode);
  check_host_count(call, std::max(before, after), "the padding");
  Ints places;
  for (int64_t i = -before; i < extent + after; ++i) {
    places.push_back(source_of(call, mode, i, extent));
  }
  const auto count = static_cast<int64_t>(places.size());
  return index_select(x, ints_on(x.device(), places, {count}), axis);
}

// A negative count takes elements away.
Tensor crop(const Call& call, const Tensor& x, int64_t axis, int64_t before, int64_t after) {
  const int64_t left = x.shape(axis) + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
  if (left < 0) call.refuse("axis " + std::to_string(axis) + " would have fewer than 0 elements");
  return x.narrow(axis, std::max<int64_t>(-before, 0), left);
}

Values padded(const Call& call, const Ints& pads, const Ints& axes, const Tensor& value) {
  Tensor x = call.input(0);
  const size_t count = axes.size();
  if (pads.size() != 2 * count) {
    call.refuse("there are " + std::to_string(pads.size()) + " pads for " + std::to_string(count) +
                " axes; allowed: two for each");
  }
  const std::string mode = call.text("mode", "constant");
  for (size_t i = 0; i < count; ++i) {
    const int64_t before = pads[i], after = pads[count + i];
    if (before < 0 || after < 0) x = crop(call, x, axes[i], before, after);
    const int64_t front = std::max<int64_t>(before, 0), back = std::max<int64_t>(after, 0);
    if (front + back == 0) continue;
    x = mode == "constant" ? pad_axis(x, axes[i], front, back, value)
                           : repeat_around(call, x, axes[i], front, back, mode);
  }
  return {x};
}

Values pad_attributes(const Call& call) {
  const char* const name = call.has("pads") ? "pads" : "paddings";
  const Tensor value = scalar_like(call.number("value", 0), call.input(0));
  return padded(call, call.integers(name, {}), all_axes(call.input(0).ndim()), value);
}

Values pad_inputs(const Call& call) {
  const Tensor x = call.input(0);
  const Tensor value = call.has(2) ? call.input(2).reshape({}) : scalar_like(0, x);
  const Ints axes = call.has(3) ? call.axes(call.ints(3), x.ndim()) : all_axes(x.ndim());
  return padded(call, call.ints(1), axes, value);
}

// Of an odd number of elements, one more is cut off or added behind.
Values center_crop_pad(const Call& call) {
  Tensor x = call.input(0);
  const Ints axes =
      call.has("axes") ? call.axes(call.integers("axes", {}), x.ndim()) : all_axes(x.ndim());
  const Ints shape = call.ints(1);
  if (shape.size() != axes.size()) {
    call.refuse("the shape has " + std::to_string(shape.size()) + " extents for " +
                std::to_string(axes.size()) + " axes");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (shape[i] < 0) call.refuse("an extent of the shape is " + std::to_string(shape[i]));
    const int64_t excess = x.shape(axes[i]) - shape[i];
    if (excess > 0) x = x.narrow(axes[i], excess / 2, shape[i]);
    if (excess < 0) {
      x = pad_axis(x, axes[i], -excess / 2, -excess - -excess / 2, scalar_like(0, x));
    }
  }
  return {x};
}

constexpr OpRow kRows[] = {
    {"CenterCropPad", 18, center_crop_pad, "axes"},
    {"Pad", 1, pad_attributes, "mode pads paddings value"},
    {"Pad", 11, pad_inputs, "mode"},
};

}  // namespace

std::span<const OpRow> pad_ops() { return kRows; }

}  // namespace bp::onnx
