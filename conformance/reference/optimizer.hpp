// Oracles of the optimizer steps, on one element of a parameter and of its state.
#pragma once

#include <cmath>
#include <cstdint>

#include "conformance/numerics/bounded.hpp"

namespace bp::conformance::reference {

struct SgdSettings {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, has_buffers = false;
  int64_t step = 1;
};

template <typename N>
struct SgdState {
  N param, buffer;
};

template <typename N>
SgdState<N> sgd_step(SgdState<N> state, N grad, const SgdSettings& s) {
  grad = grad + constant<N>(s.weight_decay) * state.param;
  if (s.has_buffers) {
    const N decayed =
        constant<N>(s.momentum) * state.buffer + (N(1) - constant<N>(s.dampening)) * grad;
    state.buffer = s.step == 1 ? grad : decayed;
    grad = s.nesterov ? grad + constant<N>(s.momentum) * state.buffer : state.buffer;
  }
  state.param = state.param - constant<N>(s.lr) * grad;
  return state;
}

struct AdamwSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  int64_t step = 1;
};

template <typename N>
struct AdamwState {
  N param, average, average_of_squares;
};

template <typename N>
N power(N base, int64_t exponent) {
  N result(1);
  for (int64_t i = 0; i < exponent; ++i) result = result * base;
  return result;
}

template <typename N>
AdamwState<N> adamw_step(AdamwState<N> state, N grad, const AdamwSettings& s) {
  using std::sqrt;
  const N one(1), beta1 = constant<N>(s.beta1), beta2 = constant<N>(s.beta2);
  const N lr = constant<N>(s.lr);
  state.param = state.param - lr * constant<N>(s.weight_decay) * state.param;
  state.average = beta1 * state.average + (one - beta1) * grad;
  state.average_of_squares = beta2 * state.average_of_squares + (one - beta2) * grad * grad;
  const N m = state.average / (one - power(beta1, s.step));
  const N v = state.average_of_squares / (one - power(beta2, s.step));
  state.param = state.param - lr * m / (sqrt(v) + constant<N>(s.eps));
  return state;
}

}  // namespace bp::conformance::reference
