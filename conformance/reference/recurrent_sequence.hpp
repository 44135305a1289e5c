// Oracles of recurrent sequences: a cell for each step, on one row at a time.
#pragma once

#include <cmath>

#include "conformance/numerics/dtype.hpp"
#include "conformance/reference/recurrent.hpp"

namespace bp::conformance::reference {

// x is (steps, rows, inputs). The cell has the state before the first step in h, and no x of its
// own.
template <typename N>
struct Sequence {
  Cell<N> cell;
  Array<N> x;
  Array<int64_t> lengths;  // Empty: each row has all steps.
  bool is_reverse = false;
  bp_dtype state_dtype = 0;  // A narrow float, to which states are rounded, or 0.

  int64_t steps() const { return x.shape[0]; }
  int64_t rows() const { return cell.rows(); }
  int64_t hidden() const { return cell.hidden(); }

  bool has(int64_t step, int64_t row) const { return lengths.size() == 0 || step < lengths[row]; }
  // Returns which step is number `i` to run.
  int64_t step_at(int64_t i) const { return is_reverse ? steps() - 1 - i : i; }

  Array<N> x_at(int64_t step) const { return part(x, step); }
  static Array<N> part(const Array<N>& of, int64_t step) {
    Array<N> result({of.shape[1], of.shape[2]});
    for (int64_t i = 0; i < result.size(); ++i) result[i] = of[step * result.size() + i];
    return result;
  }

  // Returns the state that a step leaves. The oracle does not round it: a bound has the error that
  // rounding it makes.
  N stored(N state) const {
    if constexpr (requires { state.error; }) {
      if (state_dtype != 0) {
        const FloatFormat& format = *float_format(state_dtype);
        const double most = std::fabs(state.value) + state.error;
        state.error += format.unit_roundoff() * most + format.smallest_subnormal() / 2;
      }
    }
    return state;
  }
};

template <typename N>
struct SequenceResults {
  Array<N> y, h_next, c_next, gates;
};

// Moves row `row` of `from` to the row of step `step` in `to`, which is (steps, rows, width).
template <typename N>
void store_row(Array<N>& to, int64_t step, const Array<N>& from, int64_t row) {
  const int64_t width = to.shape[2];
  for (int64_t i = 0; i < width; ++i) {
    to[(step * to.shape[1] + row) * width + i] = from[row * width + i];
  }
}

// `step_of` takes the cell and the c before a step, and gives a CellStep; `gates` is the number of
// gates that it has, and `c` is empty but for an LSTM.
template <typename N, typename StepOf>
SequenceResults<N> run_sequence(const Sequence<N>& s, Array<N> c, int64_t gates, StepOf step_of) {
  const int64_t n = s.hidden();
  Cell<N> cell = s.cell;
  SequenceResults<N> results{
      Array<N>({s.steps(), s.rows(), n}), {}, {}, Array<N>({s.steps(), s.rows(), gates * n})};
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t t = s.step_at(i);
    cell.x = s.x_at(t);
    const CellStep<N> step = step_of(cell, c);
    for (int64_t row = 0; row < s.rows(); ++row) {
      if (!s.has(t, row)) continue;
      store_row(results.y, t, step.y, row);
      if (gates != 0) store_row(results.gates, t, step.gates, row);
      for (int64_t unit = row * n; unit < (row + 1) * n; ++unit) {
        cell.h[unit] = s.stored(step.y[unit]);
        if (step.c.size() != 0) c[unit] = s.stored(step.c[unit]);
      }
    }
  }
  results.h_next = std::move(cell.h);
  results.c_next = std::move(c);
  return results;
}

template <typename N>
SequenceResults<N> lstm(const Sequence<N>& s, Array<N> c) {
  return run_sequence(s, std::move(c), 5, [](const Cell<N>& cell, const Array<N>& before) {
    return lstm_step(cell, before);
  });
}

template <typename N>
SequenceResults<N> gru(const Sequence<N>& s, bool reset_after) {
  return run_sequence(
      s, Array<N>(), reset_after ? 4 : 3,
      [reset_after](const Cell<N>& cell, const Array<N>&) { return gru_step(cell, reset_after); });
}

template <typename N>
SequenceResults<N> rnn(const Sequence<N>& s, bool is_relu) {
  return run_sequence(s, Array<N>(), 0, [is_relu](const Cell<N>& cell, const Array<N>&) {
    return CellStep<N>{rnn_step(cell, is_relu), {}, {}};
  });
}

}  // namespace bp::conformance::reference
