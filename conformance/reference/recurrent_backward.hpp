// Oracles of the gradients of recurrent sequences, on one row at a time. They take what the forward
// sequence gave: y and the gates.
#pragma once

#include <span>
#include <vector>

#include "conformance/reference/recurrent_sequence.hpp"

namespace bp::conformance::reference {

// What all three gradients take. A gradient of a last state that is not given is 0.
template <typename N>
struct SequenceGradient {
  Sequence<N> of;
  Array<N> grad_y, y, gates;
  Array<N> grad_h_next, grad_c_next;

  // Element `unit` of gate `gate`, of a step and a row.
  N gate(int64_t step, int64_t row, int64_t gate, int64_t unit) const {
    return gates[(step * of.rows() + row) * gates.shape[2] + gate * of.hidden() + unit];
  }
  // Returns the h that number `i` to run takes. A row may begin later than others.
  N h_before(int64_t i, int64_t row, int64_t unit) const {
    const bool is_first = i == 0 || !of.has(of.step_at(i - 1), row);
    if (is_first) return of.cell.h[row * of.hidden() + unit];
    return y[(of.step_at(i - 1) * of.rows() + row) * of.hidden() + unit];
  }
};

template <typename N>
struct SequenceGradients {
  Array<N> h, c, x, weight, recurrent, bias, recurrent_bias;
};

// The gradients of the sums in the gates, for each step and row: `of_x` of what x is multiplied
// by, `of_h` of what the state is multiplied by. Those of gates that take r * h in place of h are
// in `of_h` too, and `kept` has r * h for them.
template <typename N>
struct GateGradients {
  Array<N> of_x, of_h, kept;
  int64_t kept_from = 0;  // The first of the gates that take r * h; the number of gates: none does.

  GateGradients(const SequenceGradient<N>& g, int64_t count)
      : of_x({g.of.steps(), g.of.rows(), count * g.of.hidden()}),
        of_h(of_x.shape),
        kept(g.y.shape),
        kept_from(count) {}

  // Sets both to one number.
  void set(int64_t place, N d) { of_x[place] = of_h[place] = d; }

  // Returns the sum of the gradients of gates from `first` to `end` of one row, by a column of
  // `weights`.
  N through(const Array<N>& of, int64_t row, const Array<N>& weights, int64_t first, int64_t end,
            int64_t column) const {
    std::vector<N> terms;
    const int64_t width = of.shape[2];
    for (int64_t gate = first; gate < end; ++gate) {
      terms.push_back(of[row * width + gate] * weights[gate * weights.shape[1] + column]);
    }
    return sum_of(std::span<const N>(terms));
  }
};

// Sums `term(number, place, row)` over all steps that rows have.
template <typename N, typename Term>
N over_steps(const Sequence<N>& s, Term term) {
  std::vector<N> terms;
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t step = s.step_at(i);
    for (int64_t row = 0; row < s.rows(); ++row) {
      if (s.has(step, row)) terms.push_back(term(i, step * s.rows() + row, row));
    }
  }
  return sum_of(std::span<const N>(terms));
}

template <typename N>
void add_up_weights(const SequenceGradient<N>& g, const GateGradients<N>& d,
                    SequenceGradients<N>& out) {
  const Sequence<N>& s = g.of;
  const int64_t n = s.hidden(), inputs = s.x.shape[2], width = d.of_x.shape[2];
  out.weight = Array<N>(s.cell.weight.shape);
  for (int64_t i = 0; i < out.weight.size(); ++i) {
    out.weight[i] = over_steps(s, [&](int64_t, int64_t place, int64_t) {
      return d.of_x[place * width + i / inputs] * s.x[place * inputs + i % inputs];
    });
  }
  out.recurrent = Array<N>(s.cell.recurrent.shape);
  for (int64_t i = 0; i < out.recurrent.size(); ++i) {
    const int64_t gate = i / n, unit = i % n;
    out.recurrent[i] = over_steps(s, [&](int64_t number, int64_t place, int64_t row) {
      const bool is_kept = gate >= d.kept_from * n;
      return d.of_h[place * width + gate] *
             (is_kept ? d.kept[place * n + unit] : g.h_before(number, row, unit));
    });
  }
}

// Makes the gradients that are sums over steps, and that of x.
template <typename N>
void add_up(const SequenceGradient<N>& g, const GateGradients<N>& d, SequenceGradients<N>& out) {
  const Sequence<N>& s = g.of;
  const int64_t inputs = s.x.shape[2], width = d.of_x.shape[2];
  out.x = Array<N>(s.x.shape);
  for (int64_t i = 0; i < out.x.size(); ++i) {
    const int64_t row = i / inputs;
    if (!s.has(row / s.rows(), row % s.rows())) continue;
    out.x[i] = d.through(d.of_x, row, s.cell.weight, 0, width, i % inputs);
  }
  add_up_weights(g, d, out);
  const auto column = [&](const Array<N>& of, int64_t gate) {
    return over_steps(s, [&](int64_t, int64_t place, int64_t) { return of[place * width + gate]; });
  };
  out.bias = out.recurrent_bias = Array<N>({width});
  for (int64_t gate = 0; gate < width; ++gate) {
    out.bias[gate] = column(d.of_x, gate);
    out.recurrent_bias[gate] = column(d.of_h, gate);
  }
}

// Runs the steps backwards. `step(number, t, row)` gets the gradients of the state that the step
// left in `out.h` and `out.c`, and replaces them by those of the state that it took.
template <typename N, typename Step>
void run_backwards(const SequenceGradient<N>& g, SequenceGradients<N>& out, Step step) {
  const Sequence<N>& s = g.of;
  const auto given = [&](const Array<N>& next) {
    return next.size() != 0 ? next : Array<N>(s.cell.h.shape);
  };
  out.h = given(g.grad_h_next);
  out.c = given(g.grad_c_next);
  for (int64_t i = s.steps() - 1; i >= 0; --i) {
    const int64_t t = s.step_at(i);
    for (int64_t row = 0; row < s.rows(); ++row) {
      if (s.has(t, row)) step(i, t, row);
    }
  }
}

template <typename N>
SequenceGradients<N> lstm_backward(const SequenceGradient<N>& g) {
  const int64_t n = g.of.hidden(), rows = g.of.rows();
  GateGradients<N> d(g, 4);
  SequenceGradients<N> out;
  run_backwards(g, out, [&](int64_t, int64_t t, int64_t row) {
    const int64_t place = t * rows + row;
    for (int64_t unit = 0; unit < n; ++unit) {
      const N i = g.gate(t, row, 0, unit), o = g.gate(t, row, 1, unit);
      const N f = g.gate(t, row, 2, unit), candidate = g.gate(t, row, 3, unit);
      const N before = g.gate(t, row, 4, unit);
      const N level = primitive::tanh(f * before + i * candidate);
      const N dh = g.grad_y[place * n + unit] + out.h[row * n + unit];
      const N dc = out.c[row * n + unit] + dh * o * (N(1) - level * level);
      const int64_t at = place * 4 * n + unit;
      d.set(at, dc * candidate * (i * (N(1) - i)));
      d.set(at + n, dh * level * (o * (N(1) - o)));
      d.set(at + 2 * n, dc * before * (f * (N(1) - f)));
      d.set(at + 3 * n, dc * i * (N(1) - candidate * candidate));
      out.c[row * n + unit] = dc * f;
    }
    for (int64_t unit = 0; unit < n; ++unit) {
      out.h[row * n + unit] = d.through(d.of_h, place, g.of.cell.recurrent, 0, 4 * n, unit);
    }
  });
  add_up(g, d, out);
  return out;
}

// One run of the gradient of a GRU.
template <typename N>
struct GruBackward {
  const SequenceGradient<N>& g;
  bool reset_after;
  GateGradients<N> d;
  SequenceGradients<N> out;
  int64_t n;

  GruBackward(const SequenceGradient<N>& given, bool is_after)
      : g(given), reset_after(is_after), d(given, 3), n(given.of.hidden()) {
    if (!reset_after) d.kept_from = 2;
  }

  // Makes the gradients of z and of the candidate, and leaves dh * z in out.h.
  void take_unit(int64_t number, int64_t t, int64_t row, int64_t unit) {
    const int64_t place = t * g.of.rows() + row, at = place * 3 * n + unit;
    const N z = g.gate(t, row, 0, unit), r = g.gate(t, row, 1, unit);
    const N candidate = g.gate(t, row, 2, unit), h = g.h_before(number, row, unit);
    N& carried = out.h[row * n + unit];
    const N dh = g.grad_y[place * n + unit] + carried;
    const N dn = dh * (N(1) - z) * (N(1) - candidate * candidate);
    d.set(at, dh * (h - candidate) * (z * (N(1) - z)));
    d.of_x[at + 2 * n] = dn;
    d.of_h[at + 2 * n] = reset_after ? dn * r : dn;
    d.kept[place * n + unit] = r * h;
    carried = dh * z;
  }

  // Makes the gradient of r, of which the candidates of all units are a part.
  void take_reset(int64_t number, int64_t t, int64_t row, int64_t unit) {
    const int64_t place = t * g.of.rows() + row, at = place * 3 * n + unit;
    const N r = g.gate(t, row, 1, unit);
    N of_r = d.of_x[at + 2 * n] * (reset_after ? g.gate(t, row, 3, unit) : N(1));
    if (!reset_after) {
      const N scaled = d.through(d.of_h, place, g.of.cell.recurrent, 2 * n, 3 * n, unit);
      of_r = scaled * g.h_before(number, row, unit);
      out.h[row * n + unit] = out.h[row * n + unit] + scaled * r;
    }
    d.set(at + n, of_r * (r * (N(1) - r)));
  }

  void take_step(int64_t number, int64_t t, int64_t row) {
    for (int64_t unit = 0; unit < n; ++unit) take_unit(number, t, row, unit);
    for (int64_t unit = 0; unit < n; ++unit) take_reset(number, t, row, unit);
    const int64_t place = t * g.of.rows() + row, end = reset_after ? 3 * n : 2 * n;
    for (int64_t unit = 0; unit < n; ++unit) {
      N& carried = out.h[row * n + unit];
      carried = carried + d.through(d.of_h, place, g.of.cell.recurrent, 0, end, unit);
    }
  }
};

template <typename N>
SequenceGradients<N> gru_backward(const SequenceGradient<N>& g, bool reset_after) {
  GruBackward<N> run(g, reset_after);
  run_backwards(g, run.out,
                [&](int64_t number, int64_t t, int64_t row) { run.take_step(number, t, row); });
  add_up(g, run.d, run.out);
  return run.out;
}

template <typename N>
SequenceGradients<N> rnn_backward(const SequenceGradient<N>& g, bool is_relu) {
  const int64_t n = g.of.hidden(), rows = g.of.rows();
  GateGradients<N> d(g, 1);
  SequenceGradients<N> out;
  run_backwards(g, out, [&](int64_t, int64_t t, int64_t row) {
    const int64_t place = t * rows + row;
    for (int64_t unit = 0; unit < n; ++unit) {
      const N y = g.y[place * n + unit];
      const N dh = g.grad_y[place * n + unit] + out.h[row * n + unit];
      const bool is_off = y < N(0) || y == N(0);
      d.set(place * n + unit, !is_relu ? dh * (N(1) - y * y) : is_off ? N(0) : dh);
    }
    for (int64_t unit = 0; unit < n; ++unit) {
      out.h[row * n + unit] = d.through(d.of_h, place, g.of.cell.recurrent, 0, n, unit);
    }
  });
  add_up(g, d, out);
  return out;
}

}  // namespace bp::conformance::reference
