// Oracles of the recurrent cells, on one row and one unit at a time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "conformance/reference/array.hpp"
#include "conformance/reference/elementwise.hpp"
#include "conformance/reference/primitives.hpp"

namespace bp::conformance::reference {

// What the cells have in common: x (rows, inputs), h (rows, hidden), weight (gates * hidden,
// inputs), recurrent (gates * hidden, hidden), and a bias for each.
template <typename N>
struct Cell {
  Array<N> x, h, weight, recurrent;
  std::optional<Array<N>> bias, recurrent_bias;

  int64_t rows() const { return h.shape[0]; }
  int64_t hidden() const { return h.shape[1]; }

  // Appends the products of a row of `a` with row `gate` of `weights`.
  static void append(std::vector<N>& terms, const Array<N>& a, int64_t row, const Array<N>& weights,
                     int64_t gate) {
    const int64_t width = a.shape[1];
    for (int64_t k = 0; k < width; ++k) {
      terms.push_back(a[row * width + k] * weights[gate * width + k]);
    }
  }
  static void append(std::vector<N>& terms, const std::optional<Array<N>>& values, int64_t gate) {
    if (values) terms.push_back((*values)[gate]);
  }
  static N total(const std::vector<N>& terms) { return sum_of(std::span<const N>(terms)); }

  // Returns what comes from x, from `state` in place of h, and from both.
  N of_input(int64_t row, int64_t gate) const {
    std::vector<N> terms;
    append(terms, x, row, weight, gate);
    append(terms, bias, gate);
    return total(terms);
  }
  N of_state(const Array<N>& state, int64_t row, int64_t gate) const {
    std::vector<N> terms;
    append(terms, state, row, recurrent, gate);
    append(terms, recurrent_bias, gate);
    return total(terms);
  }
  N of_both(int64_t row, int64_t gate) const {
    return of_input(row, gate) + of_state(h, row, gate);
  }
};

template <typename N>
struct LstmState {
  Array<N> y, c;
};

template <typename N>
LstmState<N> lstm_cell(const Cell<N>& cell, const Array<N>& c) {
  const int64_t n = cell.hidden();
  LstmState<N> next{Array<N>(c.shape), Array<N>(c.shape)};
  for (int64_t i = 0; i < c.size(); ++i) {
    const int64_t row = i / n, unit = i % n;
    const N in = elementwise::sigmoid(cell.of_both(row, unit));
    const N out = elementwise::sigmoid(cell.of_both(row, n + unit));
    const N forget = elementwise::sigmoid(cell.of_both(row, 2 * n + unit));
    const N candidate = primitive::tanh(cell.of_both(row, 3 * n + unit));
    next.c[i] = forget * c[i] + in * candidate;
    next.y[i] = out * primitive::tanh(next.c[i]);
  }
  return next;
}

template <typename N>
Array<N> gru_cell(const Cell<N>& cell, bool reset_after) {
  const int64_t n = cell.hidden();
  Array<N> y(cell.h.shape), reset(cell.h.shape), kept(cell.h.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    reset[i] = elementwise::sigmoid(cell.of_both(i / n, n + i % n));
    kept[i] = reset[i] * cell.h[i];
  }
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / n, gate = 2 * n + i % n;
    const N update = elementwise::sigmoid(cell.of_both(row, i % n));
    const N from_state =
        reset_after ? reset[i] * cell.of_state(cell.h, row, gate) : cell.of_state(kept, row, gate);
    const N candidate = primitive::tanh(cell.of_input(row, gate) + from_state);
    y[i] = (N(1) - update) * candidate + update * cell.h[i];
  }
  return y;
}

template <typename N>
Array<N> rnn_cell(const Cell<N>& cell, bool is_relu) {
  Array<N> y(cell.h.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const N sum = cell.of_both(i / cell.hidden(), i % cell.hidden());
    y[i] = is_relu ? primitive::max(sum, N(0)) : primitive::tanh(sum);
  }
  return y;
}

}  // namespace bp::conformance::reference
