// Oracles of convolution, its three gradients and its transpose. All of them are sums over the same
// products, which for_each_product lists.
#pragma once

#include "conformance/reference/array.hpp"
#include "conformance/reference/window.hpp"

namespace bp::conformance::reference {

// The shapes: x is (n, c, spatial), weight is (o, c / groups, kernel), y is (n, o, windows).
struct ConvolutionGeometry {
  Window window;
  int64_t groups = 1;
  Shape x, weight, y;

  std::span<const int64_t> spatial() const { return std::span(x).subspan(2); }
};

// Calls visit(index in y, index in x, index in weight) for each product of the convolution.
template <typename Visit>
void for_each_product(const ConvolutionGeometry& g, Visit visit) {
  const std::span<const int64_t> windows = std::span(g.y).subspan(2);
  const int64_t window_count = element_count(windows);
  const int64_t tap_count = element_count(g.window.kernel_size);
  const int64_t input_count = element_count(g.spatial());
  const int64_t depth = g.weight[1];
  const int64_t outputs_per_group = g.weight[0] / g.groups;
  for (int64_t w = 0; w < window_count; ++w) {
    const Shape window = coordinates(w, windows);
    for (int64_t t = 0; t < tap_count; ++t) {
      const Shape tap = coordinates(t, g.window.kernel_size);
      const std::optional<int64_t> input = g.window.input_of(window, tap, g.spatial());
      if (!input) continue;
      for (int64_t no = 0; no < g.y[0] * g.y[1]; ++no) {
        const int64_t n = no / g.y[1], o = no % g.y[1];
        const int64_t first = o / outputs_per_group * depth;
        for (int64_t c = 0; c < depth; ++c) {
          visit(no * window_count + w, (n * g.x[1] + first + c) * input_count + *input,
                (o * depth + c) * tap_count + t);
        }
      }
    }
  }
}

template <typename N>
Array<N> convolution(const ConvolutionGeometry& g, const Array<N>& x, const Array<N>& weight,
                     const Array<N>* bias) {
  Array<N> y(g.y);
  const int64_t windows = element_count(std::span(g.y).subspan(2));
  for (int64_t i = 0; bias != nullptr && i < y.size(); ++i) y[i] = (*bias)[i / windows % g.y[1]];
  for_each_product(
      g, [&](int64_t out, int64_t in, int64_t tap) { y[out] = y[out] + x[in] * weight[tap]; });
  return y;
}

template <typename N>
Array<N> convolution_backward_input(const ConvolutionGeometry& g, const Array<N>& grad_y,
                                    const Array<N>& weight) {
  Array<N> grad_x(g.x);
  for_each_product(g, [&](int64_t out, int64_t in, int64_t tap) {
    grad_x[in] = grad_x[in] + grad_y[out] * weight[tap];
  });
  return grad_x;
}

// Makes y, of the shape of x in the geometry, from x, of the shape of y there.
template <typename N>
Array<N> convolution_transpose(const ConvolutionGeometry& g, const Array<N>& x,
                               const Array<N>& weight, const Array<N>* bias) {
  Array<N> y = convolution_backward_input(g, x, weight);
  const int64_t places = element_count(g.spatial());
  for (int64_t i = 0; bias != nullptr && i < y.size(); ++i) {
    y[i] = y[i] + (*bias)[i / places % g.x[1]];
  }
  return y;
}

template <typename N>
Array<N> convolution_backward_weight(const ConvolutionGeometry& g, const Array<N>& grad_y,
                                     const Array<N>& x) {
  Array<N> grad_weight(g.weight);
  for_each_product(g, [&](int64_t out, int64_t in, int64_t tap) {
    grad_weight[tap] = grad_weight[tap] + grad_y[out] * x[in];
  });
  return grad_weight;
}

// Returns the sum of grad_y (n, o, spatial) over all axes but the second.
template <typename N>
Array<N> convolution_backward_bias(const Array<N>& grad_y) {
  Array<N> grad_bias(Shape{grad_y.shape[1]});
  const int64_t inner = element_count(std::span(grad_y.shape).subspan(2));
  for (int64_t i = 0; i < grad_y.size(); ++i) {
    N& target = grad_bias[i / inner % grad_y.shape[1]];
    target = target + grad_y[i];
  }
  return grad_bias;
}

}  // namespace bp::conformance::reference
