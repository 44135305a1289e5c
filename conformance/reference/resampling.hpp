// Oracles of interpolate and its gradient. Positions are fractions, so nothing is rounded before an
// element is chosen.
#pragma once

#include <optional>

#include "backplane/ops.h"
#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

struct Interpolation {
  int64_t mode, coordinates, rounding;  // As in the frame.
};

// An element that an output reads. Without a weight it is 1.
template <typename N>
struct WeightedTap {
  int64_t input;
  std::optional<N> weight;
};

// A position along an axis of n elements: whole + rest / unit, from 0 to n - 1.
struct Position {
  int64_t whole = 0, rest = 0, unit = 1;

  // Returns the position of element i of m by the formulas of the spec.
  static Position of(int64_t coordinates, int64_t i, int64_t n, int64_t m) {
    int64_t number = 0, unit = 1;
    if (coordinates == BP_INTERPOLATE_COORDINATES_ASYMMETRIC) {
      number = i * n, unit = m;
    } else if (coordinates == BP_INTERPOLATE_COORDINATES_ALIGN_CORNERS) {
      if (m > 1) number = i * (n - 1), unit = m - 1;
    } else if (coordinates == BP_INTERPOLATE_COORDINATES_HALF_PIXEL || m > 1) {
      number = (2 * i + 1) * n - m, unit = 2 * m;
    }
    if (number < 0) return {0, 0, 1};
    if (number > (n - 1) * unit) return {n - 1, 0, 1};
    return {number / unit, number % unit, unit};
  }

  int64_t rounded(int64_t rounding) const {
    if (rounding == BP_INTERPOLATE_ROUNDING_FLOOR) return whole;
    if (rounding == BP_INTERPOLATE_ROUNDING_CEIL) return whole + (rest > 0);
    const bool is_up = rounding == BP_INTERPOLATE_ROUNDING_HALF_UP;
    return whole + (is_up ? 2 * rest >= unit : 2 * rest > unit);
  }
};

template <typename N>
std::vector<WeightedTap<N>> taps_of(const Interpolation& rules, int64_t i, int64_t n, int64_t m) {
  const Position at = Position::of(rules.coordinates, i, n, m);
  if (rules.mode == BP_INTERPOLATE_MODE_NEAREST) return {{at.rounded(rules.rounding), {}}};
  if (at.rest == 0) return {{at.whole, {}}};
  const N unit = N(static_cast<double>(at.unit));
  return {{at.whole, N(static_cast<double>(at.unit - at.rest)) / unit},
          {at.whole + 1, N(static_cast<double>(at.rest)) / unit}};
}

// Calls visit(element of y, element of x, weight) for each element that an element of y reads.
template <typename N, typename Visit>
void for_each_reading(const Interpolation& rules, const Shape& x, const Shape& y, Visit visit) {
  const std::span<const int64_t> inputs = std::span(x).subspan(2),
                                 outputs = std::span(y).subspan(2);
  const int64_t input_count = element_count(inputs), output_count = element_count(outputs);
  for (int64_t o = 0; o < element_count(y); ++o) {
    const Shape place = coordinates(o % output_count, outputs);
    std::vector<WeightedTap<N>> whole = {{0, {}}};
    for (size_t axis = 0; axis < inputs.size(); ++axis) {
      std::vector<WeightedTap<N>> longer;
      for (const auto& before : whole) {
        for (const auto& tap : taps_of<N>(rules, place[axis], inputs[axis], outputs[axis])) {
          WeightedTap<N> both{before.input * inputs[axis] + tap.input, before.weight};
          if (tap.weight) both.weight = both.weight ? *both.weight * *tap.weight : *tap.weight;
          longer.push_back(both);
        }
      }
      whole = std::move(longer);
    }
    for (const auto& tap : whole) {
      visit(o, o / output_count * input_count + tap.input, tap.weight);
    }
  }
}

// Returns the sums of the weighted elements of `terms`: y of x, or the gradient of grad_y.
template <typename N>
Array<N> interpolated(const Interpolation& rules, const Array<N>& terms, const Shape& result,
                      bool is_backward) {
  Array<N> sums(result);
  std::vector<bool> has_term(sums.data.size());
  const auto add = [&](int64_t to, int64_t from, const std::optional<N>& weight) {
    const N term = weight ? terms[from] * *weight : terms[from];
    const auto at = static_cast<size_t>(to);
    sums[to] = has_term[at] ? sums[to] + term : term;
    has_term[at] = true;
  };
  const Shape& x = is_backward ? result : terms.shape;
  const Shape& y = is_backward ? terms.shape : result;
  for_each_reading<N>(rules, x, y, [&](int64_t output, int64_t input, const auto& weight) {
    is_backward ? add(input, output, weight) : add(output, input, weight);
  });
  return sums;
}

template <typename N>
Array<N> interpolate(const Interpolation& rules, const Array<N>& x, const Shape& output_size) {
  Shape y(x.shape.begin(), x.shape.begin() + 2);
  y.insert(y.end(), output_size.begin(), output_size.end());
  return interpolated(rules, x, y, false);
}

template <typename N>
Array<N> interpolate_backward(const Interpolation& rules, const Array<N>& grad_y,
                              const Shape& input_size) {
  Shape x(grad_y.shape.begin(), grad_y.shape.begin() + 2);
  x.insert(x.end(), input_size.begin(), input_size.end());
  return interpolated(rules, grad_y, x, true);
}

}  // namespace bp::conformance::reference
