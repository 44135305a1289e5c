// Oracles of softmax and log_softmax.
#pragma once

#include <cmath>

#include "conformance/numerics/bounded.hpp"
#include "conformance/reference/array.hpp"
#include "conformance/reference/reduction.hpp"

namespace bp::conformance::reference {

template <typename N>
N largest_of(std::span<const N> row) {
  N peak = row[0];
  for (const N& value : row) peak = is_larger(value, peak) ? value : peak;
  return peak;
}

// Returns exp(x_i - max x) and the sum of these.
template <typename N>
std::vector<N> shifted_exponentials(std::span<const N> row, N& total) {
  using std::exp;
  const N peak = largest_of(row);
  std::vector<N> terms;
  for (const N& value : row) terms.push_back(exp(value - peak));
  total = sum_of(std::span<const N>(terms));
  return terms;
}

template <typename N>
std::vector<N> softmax(std::span<const N> row) {
  N total;
  std::vector<N> y = shifted_exponentials(row, total);
  for (N& value : y) value = value / total;
  return y;
}

// Returns log(sum(exp(x))).
template <typename N>
N logsumexp(std::span<const N> row) {
  using std::log;
  N total;
  shifted_exponentials(row, total);
  return log(total) + largest_of(row);
}

template <typename N>
std::vector<N> log_softmax(std::span<const N> row) {
  using std::log;
  N total;
  shifted_exponentials(row, total);
  const N peak = largest_of(row), scale = log(total);
  std::vector<N> y;
  for (const N& value : row) y.push_back((value - peak) - scale);
  return y;
}

// `y` is the result of softmax.
template <typename N>
std::vector<N> softmax_backward(std::span<const N> grad_y, std::span<const N> y) {
  std::vector<N> products, grad_x;
  for (size_t i = 0; i < y.size(); ++i) products.push_back(grad_y[i] * y[i]);
  const N total = sum_of(std::span<const N>(products));
  for (size_t i = 0; i < y.size(); ++i) grad_x.push_back(y[i] * (grad_y[i] - total));
  return grad_x;
}

// `y` is the result of log_softmax.
template <typename N>
std::vector<N> log_softmax_backward(std::span<const N> grad_y, std::span<const N> y) {
  using std::exp;
  const N total = sum_of(grad_y);
  std::vector<N> grad_x;
  for (size_t i = 0; i < y.size(); ++i) grad_x.push_back(grad_y[i] - exp(y[i]) * total);
  return grad_x;
}

}  // namespace bp::conformance::reference
