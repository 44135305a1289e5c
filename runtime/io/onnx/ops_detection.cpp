// Operators of detection: regions and boxes.
#include <algorithm>
#include <cmath>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/resample.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

// ---- RoiAlign ----------------------------------------------------------------------------------

// The positions at which the bins of a region are sampled along one axis.
struct Samples {
  std::vector<double> positions;
  int64_t per_bin = 1;
};

Samples samples_of(double begin, double end, int64_t bins, int64_t ratio, bool is_half_pixel) {
  double length = end - begin;
  if (!is_half_pixel) length = std::max(length, 1.0);
  const double bin = length / static_cast<double>(bins);
  const double per_bin = ratio > 0 ? static_cast<double>(ratio) : std::max(std::ceil(bin), 1.0);
  if (!(per_bin * static_cast<double>(bins) <= static_cast<double>(kMostOnHost))) {
    throw Error(BP_INVALID_ARGUMENT, "a region has more than " + std::to_string(kMostOnHost) +
                                         " samples, or an edge that is no number");
  }
  Samples samples;
  samples.per_bin = static_cast<int64_t>(per_bin);
  for (int64_t i = 0; i < bins * samples.per_bin; ++i) {
    samples.positions.push_back(begin + bin * (static_cast<double>(i) + 0.5) /
                                            static_cast<double>(samples.per_bin));
  }
  return samples;
}

// Samples more than one element outside weigh nothing; others outside repeat the last element.
Taps region_taps(const Samples& samples, int64_t extent) {
  std::vector<double> inside = samples.positions;
  const auto last = static_cast<double>(extent - 1);
  for (double& position : inside) position = std::clamp(position, 0.0, last);
  Taps taps = linear_taps(inside, extent, false);
  for (size_t i = 0; i < inside.size(); ++i) {
    const double position = samples.positions[i];
    if (position >= -1 && position <= last + 1) continue;
    for (std::vector<double>& weights : taps.weights) weights[i] = 0;
  }
  return taps;
}

struct Region {
  int64_t height, width, ratio;
  double scale, offset;
  bool takes_most;
};

// Returns the tap `t` alone.
Taps one_tap(const Taps& taps, size_t t) { return {{taps.places[t]}, {taps.weights[t]}}; }

// Returns the largest of the weighted neighbours of each sample, in place of their sum.
Tensor largest_neighbours(const Tensor& plane, const Taps& rows, const Taps& columns) {
  Tensor most;
  for (size_t i = 0; i < rows.places.size(); ++i) {
    const Tensor along = resample(plane, 1, one_tap(rows, i));
    for (size_t j = 0; j < columns.places.size(); ++j) {
      const Tensor part = resample(along, 2, one_tap(columns, j));
      most = most ? maximum(most, part) : part;
    }
  }
  return most;
}

Tensor align_region(const Tensor& plane, const Region& region, const double* box) {
  const bool is_half_pixel = region.offset != 0;
  const auto scaled = [&](double edge) { return edge * region.scale - region.offset; };
  const Samples rows =
      samples_of(scaled(box[1]), scaled(box[3]), region.height, region.ratio, is_half_pixel);
  const Samples columns =
      samples_of(scaled(box[0]), scaled(box[2]), region.width, region.ratio, is_half_pixel);
  const Taps row_taps = region_taps(rows, plane.shape(1));
  const Taps column_taps = region_taps(columns, plane.shape(2));
  const Tensor y = region.takes_most ? largest_neighbours(plane, row_taps, column_taps)
                                     : resample(resample(plane, 1, row_taps), 2, column_taps);
  const Tensor bins =
      y.reshape({plane.shape(0), region.height, rows.per_bin, region.width, columns.per_bin});
  return region.takes_most ? amax(bins, {2, 4}) : mean(bins, {2, 4});
}

Values roi_align(const Call& call) {
  const Tensor x = call.input(0);
  const std::vector<double> boxes = call.doubles(1);
  const Ints batches = call.ints(2);
  const std::string pool = call.text("mode", "avg");
  if (pool != "avg" && pool != "max") {
    call.refuse("attribute 'mode' is '" + pool + "'; allowed: avg and max");
  }
  const std::string mode = call.text("coordinate_transformation_mode",
                                     call.opset() < 16 ? "output_half_pixel" : "half_pixel");
  const Region region{call.integer("output_height", 1),  call.integer("output_width", 1),
                      call.integer("sampling_ratio", 0), call.number("spatial_scale", 1),
                      mode == "half_pixel" ? 0.5 : 0.0,  pool == "max"};
  check_host_count(call, region.height, "attribute 'output_height'");
  check_host_count(call, region.width, "attribute 'output_width'");
  if (boxes.size() != 4 * batches.size()) call.refuse("a region does not have 4 numbers");
  if (batches.empty()) {
    return {zeros({0, x.shape(1), region.height, region.width}, x.dtype(), x.device())};
  }
  std::vector<Tensor> results;
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i] < 0 || batches[i] >= x.shape(0)) {
      call.refuse("region " + std::to_string(i) + " is in batch " + std::to_string(batches[i]));
    }
    results.push_back(align_region(x.select(0, batches[i]), region, &boxes[4 * i]).unsqueeze(0));
  }
  return {concat(results, 0)};
}

// ---- NonMaxSuppression -------------------------------------------------------------------------

struct Box {
  double top, left, bottom, right;
  double area() const { return (bottom - top) * (right - left); }
};

Box read_box(const double* given, bool has_centre) {
  if (has_centre) {
    const double x = given[0], y = given[1], width = given[2] / 2, height = given[3] / 2;
    return {y - height, x - width, y + height, x + width};
  }
  return {std::min(given[0], given[2]), std::min(given[1], given[3]), std::max(given[0], given[2]),
          std::max(given[1], given[3])};
}

double overlap(const Box& a, const Box& b) {
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return 0;
  const double common = height * width;
  return common / (a.area() + b.area() - common);
}

struct Limits {
  int64_t most;
  double overlap, score;
  bool has_score;
};

// Takes the boxes from the best score down, and leaves out those that overlap one that was taken.
Ints choose_boxes(const std::vector<Box>& boxes, const double* scores, const Limits& limits) {
  Ints order = all_axes(static_cast<int64_t>(boxes.size()));
  const auto score_of = [&](int64_t i) { return scores[i]; };
  std::ranges::stable_sort(order, std::greater<>(), score_of);
  Ints chosen;
  for (const int64_t i : order) {
    if (static_cast<int64_t>(chosen.size()) >= limits.most) break;
    if (limits.has_score && !(scores[i] > limits.score)) break;
    const auto overlaps = [&](int64_t other) {
      return overlap(boxes[static_cast<size_t>(i)], boxes[static_cast<size_t>(other)]) >
             limits.overlap;
    };
    if (std::ranges::none_of(chosen, overlaps)) chosen.push_back(i);
  }
  return chosen;
}

Values non_max_suppression(const Call& call) {
  const Ints box_shape = call.value(0).shape();
  const Ints score_shape = call.value(1).shape();
  if (box_shape.size() != 3 || score_shape.size() != 3 || box_shape[2] != 4 ||
      box_shape[0] != score_shape[0] || box_shape[1] != score_shape[2]) {
    call.refuse("the boxes are " + bp::to_string(IntList(box_shape)) + " and the scores " +
                bp::to_string(IntList(score_shape)) + "; allowed: (N, n, 4) and (N, C, n)");
  }
  const std::vector<double> given = call.doubles(0), scores = call.doubles(1);
  const Limits limits{call.has(2) ? call.integer(2) : 0, call.has(3) ? call.number(3) : 0,
                      call.has(4) ? call.number(4) : 0, call.has(4)};
  const bool has_centre = call.flag("center_point_box", false);
  const int64_t count = box_shape[1], classes = score_shape[1];
  Ints found;
  for (int64_t batch = 0; batch < box_shape[0]; ++batch) {
    std::vector<Box> boxes;
    for (int64_t i = 0; i < count; ++i) {
      boxes.push_back(read_box(&given[static_cast<size_t>((batch * count + i) * 4)], has_centre));
    }
    for (int64_t c = 0; c < classes; ++c) {
      const double* const row = scores.data() + (batch * classes + c) * count;
      for (const int64_t i : choose_boxes(boxes, row, limits)) {
        found.insert(found.end(), {batch, c, i});
      }
    }
  }
  return {host_ints(found, {static_cast<int64_t>(found.size()) / 3, 3})};
}

constexpr OpRow kRows[] = {
    {"NonMaxSuppression", 10, non_max_suppression, "center_point_box", OnnxRoute::kHost},
    {"RoiAlign", 10, roi_align,
     "coordinate_transformation_mode mode output_height output_width sampling_ratio "
     "spatial_scale"},
};

}  // namespace

std::span<const OpRow> detection_ops() { return kRows; }

}  // namespace bp::onnx
