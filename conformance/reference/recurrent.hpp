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

// What a step gives: y, the next c of an LSTM, and its gates behind each other for the gradient.
template <typename N>
struct CellStep {
  Array<N> y, c, gates;
};

// The gates are sigmoid(input), sigmoid(output), sigmoid(forget), tanh(cell) and c.
template <typename N>
CellStep<N> lstm_step(const Cell<N>& cell, const Array<N>& c) {
  const int64_t n = cell.hidden();
  CellStep<N> step{Array<N>(c.shape), Array<N>(c.shape), Array<N>({cell.rows(), 5 * n})};
  for (int64_t i = 0; i < c.size(); ++i) {
    const int64_t row = i / n, unit = i % n;
    const N in = elementwise::sigmoid(cell.of_both(row, unit));
    const N out = elementwise::sigmoid(cell.of_both(row, n + unit));
    const N forget = elementwise::sigmoid(cell.of_both(row, 2 * n + unit));
    const N candidate = primitive::tanh(cell.of_both(row, 3 * n + unit));
    step.c[i] = forget * c[i] + in * candidate;
    step.y[i] = out * primitive::tanh(step.c[i]);
    const N gates[] = {in, out, forget, candidate, c[i]};
    for (int64_t gate = 0; gate < 5; ++gate) {
      step.gates[row * 5 * n + gate * n + unit] = gates[gate];
    }
  }
  return step;
}

// The gates are update, reset and the candidate, and if the reset comes after the product, what the
// state adds to the candidate before it.
template <typename N>
CellStep<N> gru_step(const Cell<N>& cell, bool reset_after) {
  const int64_t n = cell.hidden(), count = reset_after ? 4 : 3;
  Array<N> reset(cell.h.shape), kept(cell.h.shape);
  for (int64_t i = 0; i < reset.size(); ++i) {
    reset[i] = elementwise::sigmoid(cell.of_both(i / n, n + i % n));
    kept[i] = reset[i] * cell.h[i];
  }
  CellStep<N> step{Array<N>(cell.h.shape), {}, Array<N>({cell.rows(), count * n})};
  for (int64_t i = 0; i < reset.size(); ++i) {
    const int64_t row = i / n, unit = i % n, gate = 2 * n + unit;
    const N update = elementwise::sigmoid(cell.of_both(row, unit));
    const N inner = cell.of_state(reset_after ? cell.h : kept, row, gate);
    const N from_state = reset_after ? reset[i] * inner : inner;
    const N candidate = primitive::tanh(cell.of_input(row, gate) + from_state);
    step.y[i] = (N(1) - update) * candidate + update * cell.h[i];
    const N gates[] = {update, reset[i], candidate, inner};
    for (int64_t k = 0; k < count; ++k) step.gates[row * count * n + k * n + unit] = gates[k];
  }
  return step;
}

template <typename N>
Array<N> rnn_step(const Cell<N>& cell, bool is_relu) {
  Array<N> y(cell.h.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const N sum = cell.of_both(i / cell.hidden(), i % cell.hidden());
    y[i] = is_relu ? primitive::max(sum, N(0)) : primitive::tanh(sum);
  }
  return y;
}

}  // namespace bp::conformance::reference
