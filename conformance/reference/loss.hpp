// Oracles of cross_entropy, its gradient, and nll_loss.
#pragma once

#include <limits>

#include "conformance/reference/normalization.hpp"

namespace bp::conformance::reference {

enum class Reduction { kNone, kMean, kSum };

struct CrossEntropySettings {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Reduction reduction = Reduction::kMean;
};

inline int64_t kept_count(const Array<int64_t>& target, int64_t ignore_index) {
  int64_t count = 0;
  for (const int64_t t : target.data) count += t != ignore_index;
  return count;
}

// Returns the losses themselves, their sum, or their sum over `count`.
template <typename N>
Array<N> reduced(Array<N> losses, Reduction reduction, int64_t count) {
  if (reduction == Reduction::kNone) return losses;
  Array<N> total(Shape{});
  total[0] = sum_of(std::span<const N>(losses.data));
  if (reduction == Reduction::kMean) total[0] = total[0] / N(static_cast<double>(count));
  return total;
}

template <typename N>
struct Losses {
  Array<N> y;
  Array<N> lse;
};

template <typename N>
Losses<N> cross_entropy(const Array<N>& x, const Array<int64_t>& target,
                        const CrossEntropySettings& settings) {
  const int64_t rows = x.shape[0], classes = x.shape[1];
  Losses<N> result{Array<N>(Shape{rows}), Array<N>(Shape{rows})};
  const N smoothing = constant<N>(settings.label_smoothing);
  for (int64_t i = 0; i < rows; ++i) {
    const std::span<const N> row(&x[i * classes], static_cast<size_t>(classes));
    const N lse = logsumexp(row);
    result.lse[i] = lse;
    if (target[i] == settings.ignore_index) continue;
    // The target is out of range, so no result is right.
    if (target[i] < 0 || target[i] >= classes) {
      result.y[i] = N(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const N center = sum_of(row) / N(static_cast<double>(classes));
    result.y[i] = (N(1) - smoothing) * (lse - x[i * classes + target[i]]);
    if (settings.label_smoothing != 0) {
      result.y[i] = result.y[i] + smoothing * (lse - center);
    }
  }
  result.y =
      reduced(std::move(result.y), settings.reduction, kept_count(target, settings.ignore_index));
  return result;
}

// `x` has log-probabilities.
template <typename N>
Array<N> nll_loss(const Array<N>& x, const Array<int64_t>& target, int64_t ignore_index,
                  Reduction reduction) {
  const int64_t rows = x.shape[0], classes = x.shape[1];
  Array<N> losses(Shape{rows});
  for (int64_t i = 0; i < rows; ++i) {
    if (target[i] == ignore_index) continue;
    const bool is_class = target[i] >= 0 && target[i] < classes;  // Else no result is right.
    losses[i] =
        is_class ? -x[i * classes + target[i]] : N(std::numeric_limits<double>::quiet_NaN());
  }
  return reduced(std::move(losses), reduction, kept_count(target, ignore_index));
}

template <typename N>
Array<N> cross_entropy_backward(const Array<N>& grad_y, const Array<N>& x,
                                const Array<int64_t>& target, const Array<N>& lse,
                                const CrossEntropySettings& settings) {
  using std::exp;
  const int64_t rows = x.shape[0], classes = x.shape[1];
  Array<N> grad_x(x.shape);
  const N kept(static_cast<double>(kept_count(target, settings.ignore_index)));
  const N smoothing = constant<N>(settings.label_smoothing);
  const N share = smoothing / N(static_cast<double>(classes));
  for (int64_t i = 0; i < rows; ++i) {
    if (target[i] == settings.ignore_index) continue;
    N scale = grad_y[settings.reduction == Reduction::kNone ? i : 0];
    if (settings.reduction == Reduction::kMean) scale = scale / kept;
    for (int64_t c = 0; c < classes; ++c) {
      const N label = c == target[i] ? (N(1) - smoothing) + share : share;
      grad_x[i * classes + c] = scale * (exp(x[i * classes + c] - lse[i]) - label);
    }
  }
  return grad_x;
}

}  // namespace bp::conformance::reference
