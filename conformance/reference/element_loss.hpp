// Oracles of losses between the elements of two tensors.
#pragma once

#include <limits>

#include "conformance/reference/elementwise.hpp"
#include "conformance/reference/loss.hpp"

namespace bp::conformance::reference {

template <typename N>
N squared_loss(N x, N target) {
  const N difference = x - target;
  return difference * difference;
}

template <typename N>
N absolute_loss(N x, N target) {
  return primitive::abs(x - target);
}

// Below `delta` the loss is half of the square of the distance, and from there it is straight.
template <typename N>
N huber_loss(N x, N target, double delta) {
  const N distance = absolute_loss(x, target);
  const N near = primitive::min(distance, constant<N>(delta));
  return near * (distance - near * N(0.5));
}

// Returns huber_loss() over beta. It divides first, because a product could overflow.
template <typename N>
N smooth_absolute_loss(N x, N target, double beta) {
  const N distance = absolute_loss(x, target), width = constant<N>(beta);
  const N near = primitive::min(distance, width);
  return near / width * (distance - near * N(0.5));
}

// Returns -log(sigmoid(x)), which may lose a subnormal number as a kernel of log_sigmoid may.
template <typename N>
N surprise(N x) {
  N result = -elementwise::log_sigmoid(x);
  if constexpr (requires { result.error; }) {
    result.error +=
        N::kWide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  }
  return result;
}

// `target` is the probability of the class for which x is the logit.
template <typename N>
N binary_loss(N x, N target, N pos_weight) {
  return target * surprise(x) * pos_weight + (N(1) - target) * surprise(-x);
}

// x is the logarithm of a probability.
template <typename N>
N divergence(N x, N target) {
  if (primitive::nearest(target) == 0) return N(0);
  return target * (primitive::log(target) - x);
}

}  // namespace bp::conformance::reference
