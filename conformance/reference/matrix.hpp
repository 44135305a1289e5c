// Oracles of matmul and linear.
#pragma once

#include <cmath>

#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

// a is (..., m, k), and b is (..., k, n) with the same leading axes.
template <typename N>
Array<N> matmul(const Array<N>& a, const Array<N>& b) {
  const size_t rank = a.shape.size();
  const int64_t m = a.shape[rank - 2], k = a.shape[rank - 1], n = b.shape[rank - 1];
  Shape shape(a.shape.begin(), a.shape.end() - 1);
  shape.push_back(n);
  Array<N> y(shape);
  const int64_t batches = element_count(std::span(shape).first(rank - 2));
  for (int64_t row = 0; row < batches * m; ++row) {
    const int64_t batch = row / m;
    for (int64_t column = 0; column < n; ++column) {
      N total(0);
      for (int64_t i = 0; i < k; ++i) {
        total = total + a[row * k + i] * b[(batch * k + i) * n + column];
      }
      y[row * n + column] = total;
    }
  }
  return y;
}

// x is (..., k), weight is (n, k), and bias is (n) or NULL. The product is multiplied with alpha.
template <typename N>
Array<N> linear(const Array<N>& x, const Array<N>& weight, const Array<N>* bias, double alpha = 0) {
  const int64_t n = weight.shape[0], k = weight.shape[1];
  Shape shape(x.shape.begin(), x.shape.end() - 1);
  const int64_t rows = element_count(shape);
  shape.push_back(n);
  Array<N> y(shape);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < n; ++column) {
      N total = bias == nullptr || alpha != 0 ? N(0) : (*bias)[column];
      for (int64_t i = 0; i < k; ++i) total = total + x[row * k + i] * weight[column * k + i];
      if (alpha != 0) total = total * N(alpha) + (bias == nullptr ? N(0) : (*bias)[column]);
      y[row * n + column] = total;
    }
  }
  return y;
}

// The numbers of a scaled sum. A 0 stands for 1.
struct Scales {
  double alpha = 0, beta = 0;

  bool are_given() const { return alpha != 0 || beta != 0; }
  Scales absolute() const { return {std::fabs(alpha), std::fabs(beta)}; }
};

// Returns alpha * product + beta * addend. The addend may be NULL.
template <typename N>
Array<N> scaled_sum(Array<N> product, const Array<N>* addend, Scales scales) {
  for (int64_t i = 0; i < product.size(); ++i) {
    N& y = product[i];
    if (scales.alpha != 0) y = y * N(scales.alpha);
    if (addend != nullptr) y = y + (*addend)[i] * N(scales.beta == 0 ? 1 : scales.beta);
  }
  return product;
}

}  // namespace bp::conformance::reference
