// Oracles of pools and their gradients, and of unfold and fold.
#pragma once

#include <cmath>

#include "conformance/reference/array.hpp"
#include "conformance/reference/reduction.hpp"
#include "conformance/reference/window.hpp"

namespace bp::conformance::reference {

template <typename N>
struct Pooled {
  Array<N> values;
  Array<int64_t> indices;
};

// x is (n, c, spatial). A window that holds only padding gives -inf and the index -1.
template <typename N>
Pooled<N> max_pool(const Array<N>& x, const Window& window) {
  const std::span<const int64_t> spatial = std::span(x.shape).subspan(2);
  const Shape windows = window.output(spatial);
  Shape shape(x.shape.begin(), x.shape.begin() + 2);
  shape.insert(shape.end(), windows.begin(), windows.end());
  Pooled<N> result{Array<N>(shape), Array<int64_t>(shape)};
  const int64_t window_count = element_count(windows), input_count = element_count(spatial);
  for (int64_t i = 0; i < result.values.size(); ++i) {
    const int64_t base = i / window_count * input_count;
    const Shape place = coordinates(i % window_count, windows);
    int64_t best = -1;
    for (int64_t t = 0; t < element_count(window.kernel_size); ++t) {
      const auto input = window.input_of(place, coordinates(t, window.kernel_size), spatial);
      if (input && (best < 0 || is_larger(x[base + *input], x[base + best]))) best = *input;
    }
    result.values[i] = best < 0 ? N(-HUGE_VAL) : x[base + best];
    result.indices[i] = best;
  }
  return result;
}

// Adds each element of grad_y to the element of its plane that the index names.
template <typename N>
Array<N> max_pool_backward(const Array<N>& grad_y, const Array<int64_t>& indices,
                           const Shape& input_size) {
  Shape shape(grad_y.shape.begin(), grad_y.shape.begin() + 2);
  shape.insert(shape.end(), input_size.begin(), input_size.end());
  Array<N> grad_x(shape);
  const int64_t windows = element_count(std::span(grad_y.shape).subspan(2));
  const int64_t plane = element_count(input_size);
  for (int64_t i = 0; i < grad_y.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= plane) continue;
    N& target = grad_x[i / windows * plane + indices[i]];
    target = target + grad_y[i];
  }
  return grad_x;
}

// Calls visit(element of y, element of x, divisor) for each element of x in each window of
// `plane_count` planes.
template <typename Visit>
void for_each_average(int64_t plane_count, std::span<const int64_t> spatial, const Window& window,
                      bool counts_padding, Visit visit) {
  const Shape windows = window.output(spatial);
  const int64_t window_count = element_count(windows), input_count = element_count(spatial);
  const int64_t taps = element_count(window.kernel_size);
  for (int64_t i = 0; i < plane_count * window_count; ++i) {
    const Shape place = coordinates(i % window_count, windows);
    std::vector<int64_t> inputs;
    for (int64_t t = 0; t < taps; ++t) {
      const auto input = window.input_of(place, coordinates(t, window.kernel_size), spatial);
      if (input) inputs.push_back(i / window_count * input_count + *input);
    }
    const int64_t divisor = counts_padding ? taps : static_cast<int64_t>(inputs.size());
    for (const int64_t input : inputs) visit(i, input, divisor);
  }
}

// A window that holds only padding gives 0.
template <typename N>
Array<N> avg_pool(const Array<N>& x, const Window& window, bool counts_padding) {
  const std::span<const int64_t> spatial = std::span(x.shape).subspan(2);
  Shape shape(x.shape.begin(), x.shape.begin() + 2);
  const Shape windows = window.output(spatial);
  shape.insert(shape.end(), windows.begin(), windows.end());
  Array<N> y(shape);
  std::vector<int64_t> divisors(y.data.size(), 1);
  for_each_average(x.shape[0] * x.shape[1], spatial, window, counts_padding,
                   [&](int64_t to, int64_t from, int64_t divisor) {
                     y[to] = y[to] + x[from];
                     divisors[static_cast<size_t>(to)] = divisor;
                   });
  for (size_t i = 0; i < divisors.size(); ++i) {
    y.data[i] = y.data[i] / N(static_cast<double>(divisors[i]));
  }
  return y;
}

template <typename N>
Array<N> avg_pool_backward(const Array<N>& grad_y, const Window& window, const Shape& input_size,
                           bool counts_padding) {
  Shape shape(grad_y.shape.begin(), grad_y.shape.begin() + 2);
  shape.insert(shape.end(), input_size.begin(), input_size.end());
  Array<N> grad_x(shape);
  for_each_average(shape[0] * shape[1], input_size, window, counts_padding,
                   [&](int64_t from, int64_t to, int64_t divisor) {
                     const N share = grad_y[from] / N(static_cast<double>(divisor));
                     grad_x[to] = grad_x[to] + share;
                   });
  return grad_x;
}

// Calls visit(element of y, element of x, divisor) for each element of x in each window of adaptive
// pooling of `plane_count` planes.
template <typename Visit>
void for_each_adaptive(int64_t plane_count, std::span<const int64_t> inputs,
                       std::span<const int64_t> outputs, Visit visit) {
  const int64_t input_count = element_count(inputs), output_count = element_count(outputs);
  for (int64_t o = 0; o < plane_count * output_count; ++o) {
    const Shape place = coordinates(o % output_count, outputs);
    std::vector<int64_t> window = {0};
    for (size_t axis = 0; axis < inputs.size(); ++axis) {
      const int64_t n = inputs[axis], m = outputs[axis], i = place[axis];
      std::vector<int64_t> longer;
      for (const int64_t before : window) {
        // These are the p with floor(i * n / m) <= p < ceil((i + 1) * n / m).
        for (int64_t p = 0; p < n; ++p) {
          if ((p + 1) * m > i * n && p * m < (i + 1) * n) longer.push_back(before * n + p);
        }
      }
      window = std::move(longer);
    }
    for (const int64_t input : window) {
      visit(o, o / output_count * input_count + input, static_cast<int64_t>(window.size()));
    }
  }
}

// The mean of no elements is 0.
template <typename N>
Array<N> adaptive_avg_pool(const Array<N>& x, const Shape& output_size) {
  Shape shape(x.shape.begin(), x.shape.begin() + 2);
  shape.insert(shape.end(), output_size.begin(), output_size.end());
  Array<N> y(shape);
  std::vector<int64_t> divisors(y.data.size(), 1);
  for_each_adaptive(shape[0] * shape[1], std::span(x.shape).subspan(2), output_size,
                    [&](int64_t to, int64_t from, int64_t divisor) {
                      y[to] = y[to] + x[from];
                      divisors[static_cast<size_t>(to)] = divisor;
                    });
  for (size_t i = 0; i < divisors.size(); ++i) {
    y.data[i] = y.data[i] / N(static_cast<double>(divisors[i]));
  }
  return y;
}

template <typename N>
Array<N> adaptive_avg_pool_backward(const Array<N>& grad_y, const Shape& input_size) {
  Shape shape(grad_y.shape.begin(), grad_y.shape.begin() + 2);
  shape.insert(shape.end(), input_size.begin(), input_size.end());
  Array<N> grad_x(shape);
  for_each_adaptive(shape[0] * shape[1], input_size, std::span(grad_y.shape).subspan(2),
                    [&](int64_t from, int64_t to, int64_t divisor) {
                      const N share = grad_y[from] / N(static_cast<double>(divisor));
                      grad_x[to] = grad_x[to] + share;
                    });
  return grad_x;
}

// Every window has elements.
template <typename N>
Pooled<N> adaptive_max_pool(const Array<N>& x, const Shape& output_size) {
  Shape shape(x.shape.begin(), x.shape.begin() + 2);
  shape.insert(shape.end(), output_size.begin(), output_size.end());
  Pooled<N> result{Array<N>(shape), Array<int64_t>(shape)};
  std::vector<int64_t> best(result.values.data.size(), -1);
  const int64_t input_count = element_count(std::span(x.shape).subspan(2));
  for_each_adaptive(shape[0] * shape[1], std::span(x.shape).subspan(2), output_size,
                    [&](int64_t to, int64_t from, int64_t) {
                      int64_t& chosen = best[static_cast<size_t>(to)];
                      if (chosen < 0 || is_larger(x[from], x[chosen])) chosen = from;
                    });
  for (int64_t i = 0; i < result.values.size(); ++i) {
    const int64_t chosen = best[static_cast<size_t>(i)];
    result.values[i] = x[chosen];
    result.indices[i] = chosen % input_count;
  }
  return result;
}

// Calls visit(element of the image, element of the columns) for each element of the columns (n, c *
// taps, windows) that lies in the image (n, c, spatial).
template <typename Visit>
void for_each_column_element(const Shape& image, const Window& window, Visit visit) {
  const std::span<const int64_t> spatial = std::span(image).subspan(2);
  const Shape windows = window.output(spatial);
  const int64_t taps = element_count(window.kernel_size), window_count = element_count(windows);
  const int64_t plane = element_count(spatial);
  for (int64_t i = 0; i < image[0] * image[1] * taps * window_count; ++i) {
    const Shape tap = coordinates(i / window_count % taps, window.kernel_size);
    const auto input = window.input_of(coordinates(i % window_count, windows), tap, spatial);
    if (input) visit(i / window_count / taps * plane + *input, i);
  }
}

template <typename N>
Array<N> unfold(const Array<N>& x, const Window& window) {
  Array<N> y({x.shape[0], x.shape[1] * element_count(window.kernel_size),
              element_count(window.output(std::span(x.shape).subspan(2)))});
  for_each_column_element(x.shape, window, [&](int64_t from, int64_t to) { y[to] = x[from]; });
  return y;
}

template <typename N>
Array<N> fold(const Array<N>& x, const Shape& output_size, const Window& window) {
  Shape shape = {x.shape[0], x.shape[1] / element_count(window.kernel_size)};
  shape.insert(shape.end(), output_size.begin(), output_size.end());
  Array<N> y(shape);
  for_each_column_element(shape, window,
                          [&](int64_t to, int64_t from) { y[to] = y[to] + x[from]; });
  return y;
}

}  // namespace bp::conformance::reference
