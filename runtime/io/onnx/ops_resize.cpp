// Resize and Upsample. The op interpolate does what most models ask for. Anything else is done for
// each axis by itself: the host computes which positions of the input the elements of the result
// have.
#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/resample.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

struct Rules {
  std::string mode, transformation, nearest;
  double cubic_a = -0.75, extrapolation = 0;
  bool excludes_outside = false, is_antialiased = false;
};

struct Axis {
  int64_t axis = 0, extent = 0, result = 0;
  double scale = 1;
  double begin = 0, end = 1;  // The part of the axis for tf_crop_and_resize, from 0 to 1.
};

double position_of(const Call& call, const Rules& rules, const Axis& axis, double i) {
  // The length of the result may have a fraction here: it is what the scale asks for.
  const auto extent = static_cast<double>(axis.extent);
  const double result = extent * axis.scale;
  const std::string& name = rules.transformation;
  const double half_pixel = (i + 0.5) / axis.scale - 0.5;
  if (name == "half_pixel") return half_pixel;
  if (name == "pytorch_half_pixel") return axis.result > 1 ? half_pixel : 0;
  if (name == "asymmetric") return i / axis.scale;
  if (name == "align_corners") return axis.result > 1 ? i * (extent - 1) / (result - 1) : 0;
  if (name == "tf_half_pixel_for_nn") return (i + 0.5) / axis.scale;
  if (name == "half_pixel_symmetric") {
    const double centre = extent / 2;
    return centre * (1 - static_cast<double>(axis.result) / result) + half_pixel;
  }
  if (name != "tf_crop_and_resize") {
    call.unsupported("attribute 'coordinate_transformation_mode' is '" + name + "'");
  }
  if (axis.result == 1) return 0.5 * (axis.begin + axis.end) * (extent - 1);
  return axis.begin * (extent - 1) + i * (axis.end - axis.begin) * (extent - 1) / (result - 1);
}

double nearest_place(const Call& call, const std::string& mode, double position) {
  if (mode == "floor") return std::floor(position);
  if (mode == "ceil") return std::ceil(position);
  if (mode == "round_prefer_floor") return std::ceil(position - 0.5);
  if (mode == "round_prefer_ceil") return std::floor(position + 0.5);
  call.refuse("attribute 'nearest_mode' is '" + mode + "'");
}

Taps taps_of(const Call& call, const Rules& rules, const Axis& axis,
             const std::vector<double>& positions) {
  if (rules.is_antialiased && (rules.mode == "linear" || rules.mode == "cubic")) {
    const double count = 4 * static_cast<double>(positions.size() + 1) / std::min(axis.scale, 1.0);
    check_host_count(call, count < 0x1p62 ? static_cast<int64_t>(count) : INT64_MAX, "the weights");
    return antialiased_taps(positions, axis.extent, axis.scale, rules.mode == "cubic",
                            rules.cubic_a, rules.excludes_outside);
  }
  if (rules.mode == "linear") return linear_taps(positions, axis.extent, rules.excludes_outside);
  if (rules.mode == "cubic") {
    return cubic_taps(positions, axis.extent, rules.cubic_a, rules.excludes_outside);
  }
  if (rules.mode != "nearest") call.refuse("attribute 'mode' is '" + rules.mode + "'");
  Taps taps{{Ints()}, {}};
  for (const double position : positions) {
    const double place = nearest_place(call, rules.nearest, position);
    taps.places[0].push_back(
        static_cast<int64_t>(std::clamp(place, 0.0, static_cast<double>(axis.extent - 1))));
  }
  return taps;
}

// Elements whose position lies outside of the axis have the extrapolation value.
Tensor extrapolated(const Tensor& y, const Rules& rules, const Axis& axis,
                    const std::vector<double>& positions) {
  Ints flags;
  for (const double position : positions) {
    flags.push_back(position < 0 || position > static_cast<double>(axis.extent - 1) ? 1 : 0);
  }
  const Tensor is_outside =
      ints_on(y.device(), flags, {static_cast<int64_t>(flags.size())}).to(BP_BOOL);
  return where(align_axis(is_outside, axis.axis, y.ndim()), scalar_like(rules.extrapolation, y), y);
}

// Returns the value that stands beside a name, or nothing if no name is equal.
template <typename Value>
std::optional<Value> named(std::initializer_list<std::pair<const char*, Value>> values,
                           const std::string& name) {
  for (const auto& [known, value] : values) {
    if (name == known) return value;
  }
  return std::nullopt;
}

// Returns the extents behind the channels, or nothing if none or another one is resized, or if a
// scale is not the quotient of the extents.
std::optional<Ints> spatial_result(const Tensor& x, const std::vector<Axis>& axes) {
  const auto is_kept = [](const Axis& axis) { return axis.result == axis.extent; };
  const bool is_same = std::ranges::all_of(axes, is_kept);
  if (x.ndim() < 3 || x.ndim() > 5 || x.numel() == 0 || is_same) return std::nullopt;
  Ints extents(x.shape().begin() + 2, x.shape().end());
  for (const Axis& axis : axes) {
    const bool is_quotient =
        axis.scale * static_cast<double>(axis.extent) == static_cast<double>(axis.result);
    if (!is_quotient || (axis.axis < 2 && !is_kept(axis))) return std::nullopt;
    if (axis.axis >= 2) extents[static_cast<size_t>(axis.axis) - 2] = axis.result;
  }
  return extents;
}

// Returns the result of the op interpolate, or an empty tensor if the op does not have these rules.
Tensor interpolated(const Tensor& x, const Rules& rules, const std::vector<Axis>& axes) {
  const auto mode = named<Interpolation>(
      {{"nearest", Interpolation::kNearest}, {"linear", Interpolation::kLinear}}, rules.mode);
  const auto coordinates =
      named<Coordinates>({{"half_pixel", Coordinates::kHalfPixel},
                          {"asymmetric", Coordinates::kAsymmetric},
                          {"align_corners", Coordinates::kAlignCorners},
                          {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel}},
                         rules.transformation);
  const auto rounding = named<Rounding>({{"floor", Rounding::kFloor},
                                         {"ceil", Rounding::kCeil},
                                         {"round_prefer_floor", Rounding::kHalfDown},
                                         {"round_prefer_ceil", Rounding::kHalfUp}},
                                        rules.nearest);
  const auto extents = spatial_result(x, axes);
  const bool has_rules =
      mode && coordinates && rounding && !rules.excludes_outside && !rules.is_antialiased;
  if (!has_rules || !extents || !is_plain_float(x.dtype())) return Tensor();
  return interpolate(x, *extents, *mode, *coordinates, *rounding);
}

Tensor resize(const Call& call, const Tensor& x, const Rules& rules,
              const std::vector<Axis>& axes) {
  if (Tensor y = interpolated(x, rules, axes)) return y;
  const bool is_exact = rules.mode == "nearest" || is_plain_float(x.dtype());
  Tensor y = is_exact ? x : x.to(BP_F32);
  std::vector<std::vector<double>> positions(axes.size());
  for (const Axis& axis : axes) check_host_count(call, axis.result, "an extent of the result");
  for (size_t i = 0; i < axes.size(); ++i) {
    for (int64_t j = 0; j < axes[i].result; ++j) {
      positions[i].push_back(position_of(call, rules, axes[i], static_cast<double>(j)));
    }
    const bool is_cropped = rules.transformation == "tf_crop_and_resize";
    if (axes[i].result == axes[i].extent && axes[i].scale == 1 && !is_cropped) continue;
    if (axes[i].extent == 0) call.refuse("an axis without elements cannot be resized");
    y = resample(y, axes[i].axis, taps_of(call, rules, axes[i], positions[i]));
  }
  if (rules.transformation == "tf_crop_and_resize") {
    for (size_t i = 0; i < axes.size(); ++i) y = extrapolated(y, rules, axes[i], positions[i]);
  }
  return y.to(x.dtype());
}

std::vector<Axis> axes_of(const Tensor& x, const Ints& chosen) {
  std::vector<Axis> axes;
  for (const int64_t axis : chosen) axes.push_back({axis, x.shape(axis), x.shape(axis)});
  return axes;
}

void set_scales(const Call& call, const std::vector<double>& scales, std::vector<Axis>& axes) {
  if (scales.size() != axes.size()) {
    call.refuse("there are " + std::to_string(scales.size()) + " scales for " +
                std::to_string(axes.size()) + " axes");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const double result = static_cast<double>(axes[i].extent) * scales[i];
    if (!(scales[i] > 0) || result > 0x1p40) {
      call.refuse("a scale is " + std::to_string(scales[i]) + "; allowed: above 0");
    }
    axes[i].scale = scales[i];
    axes[i].result = static_cast<int64_t>(std::floor(result));
  }
}

void set_sizes(const Call& call, const Ints& sizes, std::vector<Axis>& axes) {
  if (sizes.size() != axes.size()) {
    call.refuse("there are " + std::to_string(sizes.size()) + " sizes for " +
                std::to_string(axes.size()) + " axes");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (sizes[i] < 0) call.refuse("a size is " + std::to_string(sizes[i]));
    axes[i].result = sizes[i];
    axes[i].scale = static_cast<double>(sizes[i]) / static_cast<double>(axes[i].extent);
  }
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch") return;
  if (policy != "not_larger" && policy != "not_smaller") {
    call.refuse("attribute 'keep_aspect_ratio_policy' is '" + policy + "'");
  }
  const auto [least, most] = std::ranges::minmax(axes, {}, &Axis::scale);
  const double scale = policy == "not_larger" ? least.scale : most.scale;
  for (Axis& axis : axes) {
    axis.scale = scale;
    axis.result = std::llround(scale * static_cast<double>(axis.extent));
  }
}

Values resize_inputs(const Call& call) {
  const Tensor x = call.input(0);
  const Ints chosen =
      call.has("axes") ? call.axes(call.integers("axes", {}), x.ndim()) : all_axes(x.ndim());
  const Rules rules{call.text("mode", "nearest"),
                    call.text("coordinate_transformation_mode", "half_pixel"),
                    call.text("nearest_mode", "round_prefer_floor"),
                    call.number("cubic_coeff_a", -0.75),
                    call.number("extrapolation_value", 0),
                    call.flag("exclude_outside", false),
                    call.flag("antialias", false)};
  if (rules.is_antialiased && rules.mode == "nearest") {
    call.refuse("attribute 'antialias' is 1; the mode nearest has no weights");
  }
  std::vector<Axis> axes = axes_of(x, chosen);
  const std::vector<double> scales = call.has(2) ? call.doubles(2) : std::vector<double>();
  if (!scales.empty()) {
    set_scales(call, scales, axes);
  } else {
    set_sizes(call, call.ints(3), axes);
  }
  const std::vector<double> region = call.has(1) ? call.doubles(1) : std::vector<double>();
  if (rules.transformation == "tf_crop_and_resize") {
    if (region.size() != 2 * axes.size())
      call.refuse("the region does not have two numbers per axis");
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].begin = region[i];
      axes[i].end = region[axes.size() + i];
    }
  }
  return {resize(call, x, rules, axes)};
}

Values upsample(const Call& call) {
  const Tensor x = call.input(0);
  std::vector<Axis> axes = axes_of(x, all_axes(x.ndim()));
  set_scales(call, call.has("scales") ? call.numbers("scales", {}) : call.doubles(1), axes);
  const std::string mode = call.text("mode", "nearest");
  const Rules rules{mode == "bilinear" ? "linear" : mode, "asymmetric", "floor"};
  return {resize(call, x, rules, axes)};
}

constexpr OpRow kRows[] = {
    {"Resize", 10, upsample, "mode"},
    {"Resize", 11, resize_inputs,
     "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
     "extrapolation_value keep_aspect_ratio_policy mode nearest_mode"},
    {"Upsample", 7, upsample, "mode scales"},
};

}  // namespace

std::span<const OpRow> resize_ops() { return kRows; }

}  // namespace bp::onnx
