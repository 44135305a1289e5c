// Oracles of the optimizer steps, on one element of a parameter and of its state.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "conformance/numerics/bounded.hpp"
#include "conformance/reference/primitives.hpp"

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

struct AdamSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  int64_t step = 1;
  bool is_decoupled = true;  // Weight decay acts on the parameter, not on the gradient.
};

template <typename N>
struct AdamState {
  N param, average, average_of_squares;
};

template <typename N>
N power(N base, int64_t exponent) {
  N result(1);
  for (int64_t i = 0; i < exponent; ++i) result = result * base;
  return result;
}

template <typename N>
AdamState<N> adam_step(AdamState<N> state, N grad, const AdamSettings& s) {
  using std::sqrt;
  const N one(1), beta1 = constant<N>(s.beta1), beta2 = constant<N>(s.beta2);
  const N lr = constant<N>(s.lr), decay = constant<N>(s.weight_decay);
  if (s.is_decoupled) {
    state.param = state.param - lr * decay * state.param;
  } else {
    grad = grad + decay * state.param;
  }
  state.average = beta1 * state.average + (one - beta1) * grad;
  state.average_of_squares = beta2 * state.average_of_squares + (one - beta2) * grad * grad;
  const N m = state.average / (one - power(beta1, s.step));
  const N v = state.average_of_squares / (one - power(beta2, s.step));
  state.param = state.param - lr * m / (sqrt(v) + constant<N>(s.eps));
  return state;
}

struct LionSettings {
  double lr = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
};

template <typename N>
struct LionState {
  N param, average;
};

// Returns the sign, which may be another one if the error of x reaches to the other side of 0.
template <typename N>
N sign_of(N x) {
  const double nearest = primitive::nearest(x);
  const N sign(nearest > 0 ? 1.0 : nearest < 0 ? -1.0 : nearest);
  if constexpr (requires { x.error; }) {
    if (x.error > 0 && std::fabs(x.value) <= x.error) return N(primitive::nearest(sign), 2.0);
  }
  return sign;
}

template <typename N>
LionState<N> lion_step(LionState<N> state, N grad, const LionSettings& s) {
  const auto mixed = [&](double beta) {
    const N kept = constant<N>(beta);
    return kept * state.average + (N(1) - kept) * grad;
  };
  const bool is_zero = primitive::nearest(state.average) == 0 && primitive::nearest(grad) == 0;
  const N sign = is_zero ? N(0) : sign_of(mixed(s.beta1));
  const N direction = sign + constant<N>(s.weight_decay) * state.param;
  state.param = state.param - constant<N>(s.lr) * direction;
  state.average = mixed(s.beta2);
  return state;
}

template <typename N>
N euclidean_norm(std::span<const N> elements) {
  using std::sqrt;
  std::vector<N> squares;
  for (const N& element : elements) squares.push_back(element * element);
  return sqrt(sum_of(std::span<const N>(squares)));
}

}  // namespace bp::conformance::reference
