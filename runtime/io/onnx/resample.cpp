// Cubic weights are those of R. Keys, "Cubic convolution interpolation for digital image
// processing", 1981, with the free parameter a.
#include "runtime/io/onnx/resample.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/io/onnx/composed.hpp"

namespace bp::onnx {
namespace {

// `weights_of` gives the weights of the places from floor(position) + `first` on.
template <typename WeightsOf>
Taps make_taps(const std::vector<double>& positions, int64_t extent, int64_t first, size_t count,
               bool excludes_outside, const WeightsOf& weights_of) {
  Taps taps{std::vector<std::vector<int64_t>>(count), std::vector<std::vector<double>>(count)};
  for (const double position : positions) {
    const double floored = std::floor(position);
    std::vector<double> weights = weights_of(position - floored);
    double total = 0;
    for (size_t t = 0; t < count; ++t) {
      const double place = floored + static_cast<double>(first) + static_cast<double>(t);
      const double inside = std::clamp(place, 0.0, static_cast<double>(extent - 1));
      if (excludes_outside && inside != place) weights[t] = 0;
      total += weights[t];
      taps.places[t].push_back(static_cast<int64_t>(inside));
    }
    for (size_t t = 0; t < count; ++t) {
      taps.weights[t].push_back(excludes_outside ? weights[t] / total : weights[t]);
    }
  }
  return taps;
}

}  // namespace

Tensor resample(const Tensor& x, int64_t axis, const Taps& taps) {
  Tensor total;
  for (size_t t = 0; t < taps.places.size(); ++t) {
    const auto count = static_cast<int64_t>(taps.places[t].size());
    Tensor taken = index_select(x, ints_on(x.device(), taps.places[t], {count}), axis);
    if (taps.weights.empty()) return taken;
    const Tensor weights = floats_on(x.device(), taps.weights[t], {count}, x.dtype());
    const Tensor part = taken * align_axis(weights, axis, x.ndim());
    total = total ? total + part : part;
  }
  return total;
}

Taps linear_taps(const std::vector<double>& positions, int64_t extent, bool excludes_outside) {
  return make_taps(positions, extent, 0, 2, excludes_outside, [](double fraction) {
    return std::vector<double>{1 - fraction, fraction};
  });
}

std::vector<double> cubic_weights(double fraction, double a) {
  const auto near = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [&](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(1 + fraction), near(fraction), near(1 - fraction), far(2 - fraction)};
}

Taps cubic_taps(const std::vector<double>& positions, int64_t extent, double a,
                bool excludes_outside) {
  return make_taps(positions, extent, -1, 4, excludes_outside,
                   [&](double fraction) { return cubic_weights(fraction, a); });
}

namespace {

// The weight of an element at a distance from the position, in steps of the result.
double weight_at(double distance, bool is_cubic, double a) {
  const double d = std::abs(distance);
  if (!is_cubic) return std::max(1 - d, 0.0);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

}  // namespace

Taps antialiased_taps(const std::vector<double>& positions, int64_t extent, double scale,
                      bool is_cubic, double a, bool excludes_outside) {
  const double step = std::min(scale, 1.0);
  const auto reach = static_cast<int64_t>(std::ceil((is_cubic ? 2 : 1) / step));
  const auto count = static_cast<size_t>(2 * reach);
  return make_taps(positions, extent, 1 - reach, count, excludes_outside, [&](double fraction) {
    std::vector<double> weights(count);
    double total = 0;
    for (size_t i = 0; i < count; ++i) {
      const double place = static_cast<double>(1 - reach) + static_cast<double>(i);
      total += weights[i] = weight_at((place - fraction) * step, is_cubic, a);
    }
    for (double& weight : weights) weight /= total;
    return weights;
  });
}

}  // namespace bp::onnx
