// Oracles of embedding and its gradient. Every index is in range.
#pragma once

#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

template <typename N>
Array<N> embedding(const Array<N>& weight, const Array<int64_t>& indices) {
  const int64_t width = weight.shape[1];
  Shape shape = indices.shape;
  shape.push_back(width);
  Array<N> y(shape);
  for (int64_t i = 0; i < y.size(); ++i) y[i] = weight[indices[i / width] * width + i % width];
  return y;
}

template <typename N>
Array<N> embedding_backward(const Array<N>& grad_y, const Array<int64_t>& indices,
                            int64_t num_embeddings) {
  const int64_t width = grad_y.shape.back();
  Array<N> grad_weight(Shape{num_embeddings, width});
  for (int64_t i = 0; i < grad_y.size(); ++i) {
    N& target = grad_weight[indices[i / width] * width + i % width];
    target = target + grad_y[i];
  }
  return grad_weight;
}

}  // namespace bp::conformance::reference
