#version 460
#extension GL_GOOGLE_include_directive : require
// The parts of the gradient of a step of lstm, gru and rnn that are no products
// (recurrent_backward.cpp).
//
//   gradient   makes `d`, the gradients of the sums in the gates, from the gradient of y
//   reset      adds those of r, if a GRU resets the state before the product
//   finish     writes the gradient of the first state
//   unseen     copies x with zeros in the steps that a row does not have, or writes these zeros
//
// `through` has the product of the `d` of the later step with the recurrent weights. The rows that
// have the later step take it as a part of dh, the gradient of the state. Everything is computed in
// f32.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "recurrent.glsl"

const uint kGradient = 0u, kReset = 1u, kFinish = 2u;

// `state` is the y of the earlier step, and `h` the first state. `unseen` writes `y` and copies
// `grad_y`, for all steps.
BP_RECORD {
  Elements grad_y, y, gates, state, h, grad_h;
  uint64_t d, d_state, before, kept, through, of_kept, dh, dc, lengths;
  int64_t grad_y_step, y_step;  // The strides of steps, in bytes.
  uint rows, hidden, step, earlier_step, later_step, steps;
} BP_RECORD_NAME;

uint64_t place_of_state(uint row, uint unit) {
  return uint64_t(row) * uint64_t(record.hidden) + uint64_t(unit);
}

void store_gate(uint64_t base, uint row, uint unit, uint gate, vec4 values) {
  const uint64_t first = uint64_t(row) * uint64_t(gate_count() * record.hidden);
  store_sums(base, first + uint64_t(gate * record.hidden + unit), values);
}

vec4 gate_of(uint row, uint unit, uint gate) {
  return load(BP_F32, record.gates, row, gate * record.hidden + unit);
}

// The slopes of tanh and of sigmoid where their value is x.
vec4 slope_of_tanh(vec4 x) { return 1.0 - x * x; }
vec4 slope_of_sigmoid(vec4 x) { return x * (1.0 - x); }

// Returns the gradient of the state that later steps give.
vec4 later_gradient(uint row, uint unit) {
  const uint64_t place = place_of_state(row, unit);
  vec4 dh = load_sums(record.dh, place);
  if (record.through != 0ul && has_step(record.lengths, record.later_step, row)) {
    dh += load_sums(record.through, place);
  }
  return dh;
}

// Returns the state that the step takes. A row may begin later than others.
vec4 state_before(uint row, uint unit) {
  const bool is_first = record.state.address == 0ul ||
                        !has_step(record.lengths, record.earlier_step, row);
  if (is_first) return load(kType, record.h, row, unit);
  return load(kType, record.state, row, unit);
}

// Keeps what the gradients of the weights multiply by `d`.
void keep(uint row, uint unit, vec4 before, vec4 kept) {
  const uint64_t place = place_of_state(row, unit);
  if (record.before != 0ul) store_to(kType, record.before, place, before);
  if (record.kept != 0ul) store_sums(record.kept, place, kept);
}

// The following functions write `d` of a row, and return the gradient of the state that needs no
// product.
vec4 run_lstm(uint row, uint unit, vec4 dh) {
  const vec4 in_gate = gate_of(row, unit, 0u), out_gate = gate_of(row, unit, 1u);
  const vec4 forget_gate = gate_of(row, unit, 2u), candidate = gate_of(row, unit, 3u);
  const vec4 before = gate_of(row, unit, 4u);
  const uint64_t place = place_of_state(row, unit);
  const vec4 level = tanh_of(forget_gate * before + in_gate * candidate);
  const vec4 dc = dh * out_gate * slope_of_tanh(level) + load_sums(record.dc, place);
  store_gate(record.d, row, unit, 0u, dc * candidate * slope_of_sigmoid(in_gate));
  store_gate(record.d, row, unit, 1u, dh * level * slope_of_sigmoid(out_gate));
  store_gate(record.d, row, unit, 2u, dc * before * slope_of_sigmoid(forget_gate));
  store_gate(record.d, row, unit, 3u, dc * in_gate * slope_of_tanh(candidate));
  store_sums(record.dc, place, dc * forget_gate);
  if (record.before != 0ul) keep(row, unit, state_before(row, unit), vec4(0.0));
  return vec4(0.0);
}

vec4 run_gru(uint row, uint unit, vec4 dh) {
  const vec4 z = gate_of(row, unit, 0u), r = gate_of(row, unit, 1u);
  const vec4 candidate = gate_of(row, unit, 2u), before = state_before(row, unit);
  const vec4 dn = dh * (1.0 - z) * slope_of_tanh(candidate);
  const vec4 dz = dh * (before - candidate) * slope_of_sigmoid(z);
  store_gate(record.d, row, unit, 0u, dz);
  store_gate(record.d, row, unit, 2u, dn);
  if (kCell == kResetAfter) {
    const vec4 dr = dn * gate_of(row, unit, 3u) * slope_of_sigmoid(r);
    store_gate(record.d, row, unit, 1u, dr);
    store_gate(record.d_state, row, unit, 0u, dz);
    store_gate(record.d_state, row, unit, 1u, dr);
    store_gate(record.d_state, row, unit, 2u, dn * r);
  }
  keep(row, unit, before, r * before);
  return dh * z;
}

// A NaN is no number of 0 or below, and relu passes its gradient.
vec4 run_simple(uint row, uint unit, vec4 dh) {
  const vec4 y = load(kType, record.y, row, unit);
  vec4 d = dh * slope_of_tanh(y);
  if (kCell == kReluCell) {
    BP_UNITS(k) d[k] = is_nan(y[k]) || is_below(0.0, y[k]) ? dh[k] : 0.0;
  }
  store_gate(record.d, row, unit, 0u, d);
  if (record.before != 0ul) keep(row, unit, state_before(row, unit), vec4(0.0));
  return vec4(0.0);
}

void clear_row(uint row, uint unit) {
  [[unroll]] for (uint gate = 0u; gate < 4u; ++gate) {
    if (gate >= gate_count()) continue;
    store_gate(record.d, row, unit, gate, vec4(0.0));
    if (kCell == kResetAfter) store_gate(record.d_state, row, unit, gate, vec4(0.0));
  }
  keep(row, unit, vec4(0.0), vec4(0.0));
}

void run_gradient(uint row, uint unit) {
  vec4 dh = later_gradient(row, unit);
  if (!has_step(record.lengths, record.step, row)) {
    clear_row(row, unit);
  } else {
    dh += load(kType, record.grad_y, row, unit);
    if (kCell == kLstmCell) {
      dh = run_lstm(row, unit, dh);
    } else if (kCell == kTanhCell || kCell == kReluCell) {
      dh = run_simple(row, unit, dh);
    } else {
      dh = run_gru(row, unit, dh);
    }
  }
  store_sums(record.dh, place_of_state(row, unit), dh);
}

void run_reset(uint row, uint unit) {
  if (!has_step(record.lengths, record.step, row)) return;
  const uint64_t place = place_of_state(row, unit);
  const vec4 r = gate_of(row, unit, 1u), of_kept = load_sums(record.of_kept, place);
  const vec4 dr = of_kept * state_before(row, unit) * slope_of_sigmoid(r);
  store_gate(record.d, row, unit, 1u, dr);
  store_sums(record.dh, place, load_sums(record.dh, place) + of_kept * r);
}

// `line` is the number of a row of a step.
void run_unseen(uint line, uint unit) {
  const uint step = line / record.rows, row = line - step * record.rows;
  const bool is_seen = has_step(record.lengths, step, row);
  if (is_seen && record.grad_y.address == 0ul) return;
  const uint size = size_of(kType);
  const uint64_t from = moved(place_of(record.grad_y, row, unit), record.grad_y_step, step);
  const uint64_t to = moved(place_of(record.y, row, unit), record.y_step, step);
  BP_UNITS(k) {
    uint bits = 0u;
    if (is_seen) bits = load_bits(size, moved(from, record.grad_y.unit, k));
    store_bits(size, moved(to, record.y.unit, k), bits);
  }
}

void main() {
  const uint units = record.hidden / kUnits, number = invocation();
  if (number >= record.steps * record.rows * units) return;
  const uint row = number / units, unit = (number - row * units) * kUnits;
  if (kStage == kGradient) {
    run_gradient(row, unit);
  } else if (kStage == kReset) {
    run_reset(row, unit);
  } else if (kStage == kFinish) {
    store(kType, record.grad_h, row, unit, later_gradient(row, unit));
  } else {
    run_unseen(row, unit);
  }
}
