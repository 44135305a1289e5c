// Oracles of layer_norm and rms_norm and their gradients. A tensor is rows of `width` elements,
// which are normalized together.
#pragma once

#include <cmath>
#include <optional>

#include "conformance/numerics/bounded.hpp"
#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

template <typename N>
using Optional = std::optional<Array<N>>;

enum class Norm { kLayer, kRms };

template <typename N>
struct Normalized {
  Array<N> y, mean, rstd, variance;
};

template <typename N>
N mean_of(const std::vector<N>& values) {
  return sum_of(std::span<const N>(values)) / N(static_cast<double>(values.size()));
}

template <typename N>
std::vector<N> row_of(const Array<N>& x, int64_t row, int64_t width) {
  const auto first = x.data.begin() + static_cast<std::ptrdiff_t>(row * width);
  return std::vector<N>(first, first + static_cast<std::ptrdiff_t>(width));
}

// `rows` is the shape of the statistics. The variance of RMS norm is the mean of the squares.
template <typename N>
Normalized<N> normalize(const Array<N>& x, const Shape& rows, const Optional<N>& gamma,
                        const Optional<N>& beta, double eps, Norm norm) {
  using std::sqrt;
  Normalized<N> result{Array<N>(x.shape), Array<N>(rows), Array<N>(rows), Array<N>(rows)};
  const int64_t count = result.mean.size(), width = count == 0 ? 0 : x.size() / count;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<N> row = row_of(x, i, width);
    if (norm == Norm::kLayer) result.mean[i] = mean_of(row);
    std::vector<N> squares;
    for (N& value : row) {
      if (norm == Norm::kLayer) value = value - result.mean[i];
      squares.push_back(value * value);
    }
    result.variance[i] = mean_of(squares);
    result.rstd[i] = N(1) / sqrt(result.variance[i] + constant<N>(eps));
    for (int64_t k = 0; k < width; ++k) {
      N y = row[static_cast<size_t>(k)] * result.rstd[i];
      if (gamma) y = y * (*gamma)[k];
      if (beta) y = y + (*beta)[k];
      result.y[i * width + k] = y;
    }
  }
  return result;
}

template <typename N>
struct NormGradients {
  Array<N> x, gamma, beta;
};

// Returns the gradients. That of x is rstd * (h - m(h) - u * m(h * u)) with u = (x - mean) * rstd
// and h = grad_y * gamma; RMS norm has no mean of x and no m(h). `weights` is the shape of gamma.
template <typename N>
NormGradients<N> normalize_backward(const Array<N>& grad_y, const Array<N>& x,
                                    const Optional<N>& gamma, const Optional<N>& mean,
                                    const Array<N>& rstd, const Shape& weights) {
  NormGradients<N> result{Array<N>(x.shape), Array<N>(weights), Array<N>(weights)};
  const int64_t width = element_count(weights);
  std::vector<std::vector<N>> columns(static_cast<size_t>(width));
  std::vector<std::vector<N>> scaled_columns(static_cast<size_t>(width));
  for (int64_t i = 0; i < rstd.size(); ++i) {
    std::vector<N> u = row_of(x, i, width), h = row_of(grad_y, i, width), hu;
    for (size_t k = 0; k < u.size(); ++k) {
      u[k] = (mean ? u[k] - (*mean)[i] : u[k]) * rstd[i];
      columns[k].push_back(h[k]);
      scaled_columns[k].push_back(h[k] * u[k]);
      if (gamma) h[k] = h[k] * (*gamma)[static_cast<int64_t>(k)];
      hu.push_back(h[k] * u[k]);
    }
    const N mean_hu = mean_of(hu), mean_h = mean ? mean_of(h) : N(0);
    for (size_t k = 0; k < u.size(); ++k) {
      const N centered = mean ? h[k] - mean_h : h[k];
      result.x[i * width + static_cast<int64_t>(k)] = rstd[i] * (centered - u[k] * mean_hu);
    }
  }
  for (int64_t k = 0; k < width; ++k) {
    const auto at = static_cast<size_t>(k);
    result.beta[k] = sum_of(std::span<const N>(columns[at]));
    result.gamma[k] = sum_of(std::span<const N>(scaled_columns[at]));
  }
  return result;
}

}  // namespace bp::conformance::reference
