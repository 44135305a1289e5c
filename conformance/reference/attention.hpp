// Oracles of sdpa and rope and their gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/product_errors.hpp"
#include "conformance/reference/array.hpp"
#include "conformance/reference/functions.hpp"
#include "conformance/reference/random.hpp"

namespace bp::conformance::reference {

// Which keys a query may see: all, or those up to its diagonal, which ends at the last key or
// begins at the first.
enum class Causal { kNone, kBottomRight, kTopLeft };

// The shapes: q is (batch, heads, queries, width), k is (batch, key heads, keys, width), v is
// (batch, key heads, keys, value width); mask and bias are (batch, heads, queries, keys), and sinks
// are (heads).
template <typename N>
struct Attention {
  Array<N> q, k, v;
  std::optional<Array<int64_t>> mask;
  std::optional<Array<N>> bias;
  double scale = 1;
  Causal causal = Causal::kNone;
  int64_t window_left = 0, window_right = 0;
  double softcap = 0;
  std::optional<Array<N>> sinks;
  double dropout_p = 0;
  RandomState random;

  int64_t queries() const { return q.shape[2]; }
  int64_t keys() const { return k.shape[2]; }
  int64_t width() const { return q.shape[3]; }
  int64_t value_width() const { return v.shape[3]; }
  int64_t row_count() const { return q.shape[0] * q.shape[1] * queries(); }

  // Returns the number of the row of k and v that query row `row` reads as its key j.
  int64_t key_row(int64_t row, int64_t j) const {
    const int64_t head = row / queries() % q.shape[1];
    const int64_t batch = row / queries() / q.shape[1];
    const int64_t group = q.shape[1] / k.shape[1];
    return (batch * k.shape[1] + head / group) * keys() + j;
  }

  int64_t head_of(int64_t row) const { return row / queries() % q.shape[1]; }

  std::vector<int64_t> seen_keys(int64_t row) const {
    std::vector<int64_t> seen;
    const int64_t query = row % queries();
    const int64_t diagonal = causal == Causal::kTopLeft ? query : query + keys() - queries();
    for (int64_t j = 0; j < keys(); ++j) {
      if (causal != Causal::kNone && j > diagonal) continue;
      if (window_left != 0 && diagonal - j >= window_left) continue;
      if (window_right != 0 && j - diagonal >= window_right) continue;
      if (mask && (*mask)[row * keys() + j] == 0) continue;
      seen.push_back(j);
    }
    return seen;
  }

  N bent(N scaled) const {
    using std::tanh;
    return tanh(scaled / constant<N>(softcap));
  }
  // Returns the slope of the soft cap.
  N slope(int64_t row, int64_t j) const {
    if (softcap == 0) return N(1);
    std::vector<N> products;
    for (int64_t c = 0; c < width(); ++c) {
      products.push_back(
          product_of_inputs(q[row * width() + c] * k[key_row(row, j) * width() + c]));
    }
    const N t = bent(constant<N>(scale) * sum_of(std::span<const N>(products)));
    return N(1) - t * t;
  }
  // Returns what dropout multiplies a weight by.
  N kept(int64_t row, int64_t j) const {
    if (dropout_p == 0) return N(1);
    return dropout(random, static_cast<uint64_t>(row * keys() + j), dropout_p, N(1));
  }

  // Returns the score without the bias.
  N capped(int64_t row, int64_t j) const {
    std::vector<N> products;
    for (int64_t c = 0; c < width(); ++c) {
      products.push_back(
          product_of_inputs(q[row * width() + c] * k[key_row(row, j) * width() + c]));
    }
    const N scaled = constant<N>(scale) * sum_of(std::span<const N>(products));
    return softcap == 0 ? scaled : constant<N>(softcap) * bent(scaled);
  }
  N score(int64_t row, int64_t j) const {
    return bias ? capped(row, j) + (*bias)[row * keys() + j] : capped(row, j);
  }
};

template <typename N>
struct Attended {
  Array<N> y, lse;
};

// A query that sees no key gives 0, and -inf or its sink in lse. So does a query whose scores are
// all -inf.
template <typename N>
Attended<N> sdpa(const Attention<N>& a) {
  using std::exp;
  using std::log;
  Attended<N> result{Array<N>(Shape{a.q.shape[0], a.q.shape[1], a.queries(), a.value_width()}),
                     Array<N>(Shape{a.q.shape[0], a.q.shape[1], a.queries()})};
  for (int64_t row = 0; row < a.row_count(); ++row) {
    const std::vector<int64_t> seen = a.seen_keys(row);
    result.lse[row] = a.sinks ? (*a.sinks)[a.head_of(row)] : N(-HUGE_VAL);
    std::vector<N> weights;
    weights.reserve(seen.size() + 1);  // A sink may join them.
    for (const int64_t j : seen) weights.push_back(a.score(row, j));
    const bool is_nothing = std::all_of(weights.begin(), weights.end(),
                                        [](const N& weight) { return weight == N(-HUGE_VAL); });
    if (is_nothing) continue;
    if (a.sinks) weights.push_back((*a.sinks)[a.head_of(row)]);
    N peak = weights.front();
    for (const N& weight : weights) peak = peak < weight ? weight : peak;
    for (N& weight : weights) weight = exp(weight - peak);
    const N total = sum_of(std::span<const N>(weights));
    result.lse[row] = log(total) + peak;
    for (int64_t c = 0; c < a.value_width(); ++c) {
      std::vector<N> terms;
      for (size_t i = 0; i < seen.size(); ++i) {
        const N kept = a.kept(row, seen[i]);
        if (kept == N(0)) continue;
        terms.push_back(weights[i] / total * kept *
                        a.v[a.key_row(row, seen[i]) * a.value_width() + c]);
      }
      result.y[row * a.value_width() + c] = sum_of(std::span<const N>(terms));
    }
  }
  return result;
}

// The terms of the elements of a tensor, to be summed in any order.
template <typename N>
class TermSums {
 public:
  explicit TermSums(const Shape& shape) : sums_(shape), terms_(sums_.data.size()) {}

  void add(int64_t index, const N& term) { terms_[static_cast<size_t>(index)].push_back(term); }

  Array<N> scaled(const N& factor) {
    for (size_t i = 0; i < terms_.size(); ++i) {
      sums_.data[i] = factor * sum_of(std::span<const N>(terms_[i]));
    }
    return sums_;
  }

  Array<N> plain() {
    for (size_t i = 0; i < terms_.size(); ++i) {
      sums_.data[i] = sum_of(std::span<const N>(terms_[i]));
    }
    return sums_;
  }

 private:
  Array<N> sums_;
  std::vector<std::vector<N>> terms_;
};

template <typename N>
struct AttentionGradients {
  Array<N> q, k, v, sinks;
};

// Returns the sum of term(a * b) for the elements of two rows.
template <typename N, class Term>
N dot_rows(const Array<N>& a, int64_t row_of_a, const Array<N>& b, int64_t row_of_b, int64_t width,
           const Term& term) {
  std::vector<N> terms;
  for (int64_t c = 0; c < width; ++c)
    terms.push_back(term(a[row_of_a * width + c] * b[row_of_b * width + c]));
  return sum_of(std::span<const N>(terms));
}

// Returns the weight of a key, which may vanish if it is subnormal. If lse is NaN, so is the
// weight.
template <typename N>
N weight_of(N score, N lse) {
  using std::exp;
  const bool is_number = lse == lse;
  if (score == N(-HUGE_VAL) && is_number) return N(0);
  N weight = exp(score - lse);
  if constexpr (requires { N::kUnit; }) weight.error += N::kWide ? 0x1p-1022 : 0x1p-126;
  return weight;
}

// `y` and `lse` are the results of sdpa. A query without weights has no gradient, and adds nothing
// to the others. The value of a weight that dropout drops is never used, nor is grad_y for it. A
// key of weight 0 has no part in the gradients if `skips_zeros`; else it adds its products with 0.
template <typename N>
AttentionGradients<N> sdpa_backward(const Attention<N>& a, const Array<N>& grad_y,
                                    const Array<N>& y, const Array<N>& lse,
                                    bool skips_zeros = false) {
  TermSums<N> grad_q(a.q.shape), grad_k(a.k.shape), grad_v(a.v.shape);
  TermSums<N> grad_sinks(Shape{a.q.shape[1]});
  for (int64_t row = 0; row < a.row_count(); ++row) {
    if (lse[row] == N(-HUGE_VAL)) continue;
    const N delta = dot_rows(grad_y, row, y, row, a.value_width(), std::identity());
    if (a.sinks) {
      const int64_t head = a.head_of(row);
      grad_sinks.add(head, -(weight_of((*a.sinks)[head], lse[row]) * delta));
    }
    for (const int64_t j : a.seen_keys(row)) {
      const int64_t key = a.key_row(row, j);
      const N p = weight_of(a.score(row, j), lse[row]), kept = a.kept(row, j);
      if (skips_zeros && p == N(0)) continue;
      const bool is_kept = kept != N(0);
      const N product =
          is_kept ? kept * dot_rows(grad_y, row, a.v, key, a.value_width(), product_of_inputs<N>)
                  : N(0);
      const N s = p * a.slope(row, j) * (product - delta);
      for (int64_t c = 0; c < a.value_width() && is_kept; ++c) {
        grad_v.add(key * a.value_width() + c,
                   product_of_results(p * kept * grad_y[row * a.value_width() + c]));
      }
      for (int64_t c = 0; c < a.width(); ++c) {
        grad_q.add(row * a.width() + c, product_of_results(s * a.k[key * a.width() + c]));
        grad_k.add(key * a.width() + c, product_of_results(s * a.q[row * a.width() + c]));
      }
    }
  }
  const N scale = constant<N>(a.scale);
  return {grad_q.scaled(scale), grad_k.scaled(scale), grad_v.plain(), grad_sinks.plain()};
}

// ---- rope ------------------------------------------------------------------------------------ //

// Turns pair i of a row of x by the angle of cosines[i]. The gradient turns in the other direction.
template <typename N>
Array<N> rope(const Array<N>& x, const Array<N>& cosines, const Array<N>& sines,
              bool is_interleaved, bool turns_back) {
  Array<N> y = x;
  const int64_t width = x.shape.back(), pairs = cosines.shape.back();
  const int64_t rows = width == 0 ? 0 : x.size() / width;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t first = row * width + (is_interleaved ? 2 * i : i);
      const int64_t second = first + (is_interleaved ? 1 : pairs);
      const N a = x[first], b = x[second], cosine = cosines[row * pairs + i];
      const N sine = turns_back ? -sines[row * pairs + i] : sines[row * pairs + i];
      y[first] = a * cosine - b * sine;
      y[second] = b * cosine + a * sine;
    }
  }
  return y;
}

}  // namespace bp::conformance::reference
