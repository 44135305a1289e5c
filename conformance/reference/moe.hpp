// Oracles of mixtures of experts: moe_route, moe_permute, moe_unpermute and grouped_matmul.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "conformance/reference/array.hpp"
#include "conformance/reference/functions.hpp"
#include "conformance/reference/selection.hpp"

namespace bp::conformance::reference {

struct RouteRule {
  int64_t k = 1;
  bool is_sigmoid = false, renormalizes = false;
  int64_t capacity = 0;
};

struct Routed {
  Array<int64_t> experts, counts;
  int64_t dropped = 0;
};

// Chooses the experts of the largest elements, and drops those that are full: the first choices of
// all tokens come before their second ones.
template <typename K>
Routed choose_experts(const Array<K>& choice, const RouteRule& rule) {
  Routed result{sorted(choice, 1, rule.k, true).indices, Array<int64_t>(Shape{choice.shape[1]})};
  const int64_t tokens = choice.shape[0];
  for (int64_t i = 0; i < tokens * rule.k; ++i) {
    int64_t& expert = result.experts[i % tokens * rule.k + i / tokens];
    int64_t& count = result.counts[expert];
    if (rule.capacity != 0 && count == rule.capacity) {
      expert = -1;
      ++result.dropped;
    } else {
      ++count;
    }
  }
  return result;
}

template <typename N>
N sigmoid_score(const N& x) {
  using std::exp;
  return x < N(0) ? exp(x) / (N(1) + exp(x)) : N(1) / (N(1) + exp(-x));
}

// Returns the weights of the chosen experts.
template <typename N>
Array<N> route_weights(const Array<N>& x, const Array<int64_t>& experts, const RouteRule& rule) {
  using std::exp;
  Array<N> weights(experts.shape);
  const int64_t width = x.shape[1];
  for (int64_t token = 0; token < x.shape[0]; ++token) {
    const std::span<const N> row(x.data.data() + token * width, static_cast<size_t>(width));
    N peak = row[0];
    for (const N& value : row) peak = peak < value ? value : peak;
    std::vector<N> terms, kept;
    for (const N& value : row) terms.push_back(exp(value - peak));
    const N total = sum_of(std::span<const N>(terms));
    for (int64_t j = 0; j < rule.k; ++j) {
      const int64_t expert = experts[token * rule.k + j];
      if (expert < 0) continue;
      const auto at = static_cast<size_t>(expert);
      N& weight = weights[token * rule.k + j];
      weight = rule.is_sigmoid ? sigmoid_score(row[at]) : terms[at] / total;
      kept.push_back(weight);
    }
    const N divisor = sum_of(std::span<const N>(kept));
    if (!rule.renormalizes || kept.empty() || divisor == N(0)) continue;
    for (int64_t j = 0; j < rule.k; ++j) {
      N& weight = weights[token * rule.k + j];
      if (experts[token * rule.k + j] >= 0) weight = weight / divisor;
    }
  }
  return weights;
}

template <typename N>
struct Permuted {
  Array<N> y;
  Array<int64_t> offsets, places;
};

template <typename N>
Permuted<N> moe_permute(const Array<N>& x, const Array<int64_t>& experts, int64_t num_experts) {
  const int64_t width = x.shape[1], k = experts.shape[1];
  Permuted<N> result{Array<N>(Shape{experts.size(), width}), Array<int64_t>(Shape{num_experts + 1}),
                     Array<int64_t>(experts.shape)};
  std::fill(result.places.data.begin(), result.places.data.end(), int64_t{-1});
  int64_t row = 0;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    for (int64_t pair = 0; pair < experts.size(); ++pair) {
      if (experts[pair] != expert) continue;
      for (int64_t c = 0; c < width; ++c) result.y[row * width + c] = x[pair / k * width + c];
      result.places[pair] = row++;
    }
    result.offsets[expert + 1] = row;
  }
  return result;
}

// `weights` may be NULL.
template <typename N>
Array<N> moe_unpermute(const Array<N>& x, const Array<int64_t>& places, const Array<N>* weights) {
  const int64_t width = x.shape[1], k = places.shape[1];
  Array<N> y(Shape{places.shape[0], width});
  for (int64_t pair = 0; pair < places.size(); ++pair) {
    if (places[pair] < 0 || places[pair] >= x.shape[0]) continue;
    for (int64_t c = 0; c < width; ++c) {
      const N value = x[places[pair] * width + c];
      N& total = y[pair / k * width + c];
      total = total + (weights == nullptr ? value : (*weights)[pair] * value);
    }
  }
  return y;
}

// Calls visit(group, row) for each row of a group. An offset acts as the nearest one among the
// rows.
template <typename Visit>
void for_each_group_row(const Array<int64_t>& offsets, int64_t rows, const Visit& visit) {
  for (int64_t group = 0; group + 1 < offsets.size(); ++group) {
    const int64_t begin = std::clamp<int64_t>(offsets[group], 0, rows);
    const int64_t end = std::clamp<int64_t>(offsets[group + 1], 0, rows);
    for (int64_t row = begin; row < end; ++row) visit(group, row);
  }
}

template <typename N>
Array<N> grouped_matmul(const Array<N>& a, const Array<N>& b, const Array<int64_t>& offsets) {
  const int64_t depth = a.shape[1], n = b.shape[2];
  Array<N> y(Shape{a.shape[0], n});
  for_each_group_row(offsets, a.shape[0], [&](int64_t group, int64_t row) {
    for (int64_t c = 0; c < n; ++c) {
      N total(0);
      for (int64_t i = 0; i < depth; ++i) {
        total = total + a[row * depth + i] * b[(group * depth + i) * n + c];
      }
      y[row * n + c] = total;
    }
  });
  return y;
}

template <typename N>
Array<N> grouped_matmul_backward_b(const Array<N>& grad_y, const Array<N>& a,
                                   const Array<int64_t>& offsets) {
  const int64_t depth = a.shape[1], n = grad_y.shape[1];
  Array<N> grad_b(Shape{offsets.size() - 1, depth, n});
  for_each_group_row(offsets, a.shape[0], [&](int64_t group, int64_t row) {
    for (int64_t i = 0; i < depth; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        N& total = grad_b[(group * depth + i) * n + c];
        total = total + a[row * depth + i] * grad_y[row * n + c];
      }
    }
  });
  return grad_b;
}

}  // namespace bp::conformance::reference
