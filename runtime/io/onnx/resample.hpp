// Interpolation along one axis, whose weights the host computes.
#pragma once

#include "runtime/io/onnx/call.hpp"

namespace bp::onnx {

// Element i of the result is the sum over t of weights[t][i] times element places[t][i].
struct Taps {
  std::vector<std::vector<int64_t>> places;
  std::vector<std::vector<double>> weights;  // Empty: there is one tap, which is copied.
};

Tensor resample(const Tensor& x, int64_t axis, const Taps& taps);

// Returns the taps of linear or cubic interpolation at `positions` of an axis of `extent` elements.
// Behind the ends the last element is repeated; if `excludes_outside`, those places weigh nothing.
Taps linear_taps(const std::vector<double>& positions, int64_t extent, bool excludes_outside);
Taps cubic_taps(const std::vector<double>& positions, int64_t extent, double a,
                bool excludes_outside);

// Does the same where `scale` elements of the result stand for one of the axis. If these are fewer
// than one, the interpolation reaches as much further.
Taps antialiased_taps(const std::vector<double>& positions, int64_t extent, double scale,
                      bool is_cubic, double a, bool excludes_outside);

// Returns the four weights of cubic interpolation at `fraction` between the second and the third
// place.
std::vector<double> cubic_weights(double fraction, double a);

}  // namespace bp::onnx
