#version 460
#extension GL_GOOGLE_include_directive : require
// The parts of a step of lstm, gru and rnn that are no products (recurrent_forward.cpp).
//
//   lengths   checks the lengths of all rows, and writes how many steps each row has
//   offsets   writes the sum of the biases of each gate, which the product of x adds
//   reset     multiplies the state by r, if a GRU resets it before the product
//   cell      makes y, the gates and the next state from the sums of the gates
//
// `sums` has the product of x with the weights, and `inner` that of the state. Both are (rows,
// gates * hidden) for the step. Everything is computed in f32. The state is rounded to the dtype of
// x after each step.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "failure.glsl"
#include "recurrent.glsl"

layout(constant_id = 5) const uint kIndexType = 7;
layout(constant_id = 6) const uint kClamps = 0;

const uint kLengths = 0u, kOffsets = 1u, kReset = 2u;

BP_RECORD {
  Elements y, gates, bias, recurrent_bias, given_lengths;
  uint64_t sums, inner, kept, h, c, lengths, offsets, failure;
  uint rows, hidden, steps, step;
} BP_RECORD_NAME;

void run_lengths() {
  const uint row = invocation();
  if (row >= record.rows) return;
  const uint64_t place = place_of(record.given_lengths, row, 0u);
  const int64_t extent = int64_t(uint64_t(record.steps)) + 1l;
  const int64_t length = acting(load_i64(kIndexType, place), extent, kClamps);
  const bool is_right = is_place(length, extent);
  if (!is_right) fail_with(record.failure, length, place);
  Bytes4(record.lengths + 4ul * uint64_t(row)).value = is_right ? uint(length) : 0u;
}

// Returns whether the reset multiplies the bias of the state of a gate, so that it is no offset.
bool is_inner(uint gate) { return kCell == kResetAfter && gate == 2u; }

void run_offsets() {
  const uint number = invocation();
  if (number >= gate_count() * record.hidden) return;
  float offset = 0.0;
  if (record.bias.address != 0ul) offset = load_f32(kType, place_of(record.bias, 0u, number));
  if (record.recurrent_bias.address != 0ul && !is_inner(number / record.hidden)) {
    offset += load_f32(kType, place_of(record.recurrent_bias, 0u, number));
  }
  Float32(record.offsets + 4ul * uint64_t(number)).value = offset;
}

// Returns the place of a gate in the sums of a row.
uint64_t place_of_gate(uint row, uint unit, uint gate) {
  return uint64_t(row) * uint64_t(gate_count() * record.hidden) +
         uint64_t(gate * record.hidden + unit);
}

// Returns what x and the biases add to the sum of a gate.
vec4 from_x(uint row, uint unit, uint gate) {
  return load_sums(record.sums, place_of_gate(row, unit, gate));
}

// Returns what the state adds to the sum of a gate.
vec4 from_h(uint row, uint unit, uint gate) {
  vec4 sums = load_sums(record.inner, place_of_gate(row, unit, gate));
  if (is_inner(gate) && record.recurrent_bias.address != 0ul) {
    sums += load(kType, record.recurrent_bias, 0u, gate * record.hidden + unit);
  }
  return sums;
}

vec4 sum_of_gate(uint row, uint unit, uint gate) {
  return from_x(row, unit, gate) + from_h(row, unit, gate);
}

void store_gate(uint row, uint unit, uint gate, vec4 values) {
  if (record.gates.address == 0ul) return;
  store(BP_F32, record.gates, row, gate * record.hidden + unit, values);
}

// Returns the place of a unit in the buffers of the state.
uint64_t place_of_state(uint row, uint unit) {
  return uint64_t(row) * uint64_t(record.hidden) + uint64_t(unit);
}

vec4 run_lstm(uint row, uint unit) {
  const vec4 in_gate = sigmoid_of(sum_of_gate(row, unit, 0u));
  const vec4 out_gate = sigmoid_of(sum_of_gate(row, unit, 1u));
  const vec4 forget_gate = sigmoid_of(sum_of_gate(row, unit, 2u));
  const vec4 candidate = tanh_of(sum_of_gate(row, unit, 3u));
  const uint64_t place = place_of_state(row, unit);
  const vec4 before = load_from(kType, record.c, place);
  const vec4 next = forget_gate * before + in_gate * candidate;
  store_gate(row, unit, 0u, in_gate);
  store_gate(row, unit, 1u, out_gate);
  store_gate(row, unit, 2u, forget_gate);
  store_gate(row, unit, 3u, candidate);
  store_gate(row, unit, 4u, before);
  store_to(kType, record.c, place, next);
  return out_gate * tanh_of(next);
}

vec4 run_gru(uint row, uint unit) {
  const vec4 z = sigmoid_of(sum_of_gate(row, unit, 0u));
  const vec4 r = sigmoid_of(sum_of_gate(row, unit, 1u));
  vec4 inner = from_h(row, unit, 2u);
  if (kCell == kResetAfter) {
    store_gate(row, unit, 3u, inner);
    inner *= r;
  }
  const vec4 candidate = tanh_of(from_x(row, unit, 2u) + inner);
  store_gate(row, unit, 0u, z);
  store_gate(row, unit, 1u, r);
  store_gate(row, unit, 2u, candidate);
  return (1.0 - z) * candidate + z * load_from(kType, record.h, place_of_state(row, unit));
}

// A NaN is no number below 0, and relu keeps it.
vec4 run_simple(uint row, uint unit) {
  vec4 sums = sum_of_gate(row, unit, 0u);
  if (kCell == kTanhCell) return tanh_of(sums);
  BP_UNITS(k) {
    if (!is_nan(sums[k]) && is_below(sums[k], 0.0)) sums[k] = 0.0;
  }
  return sums;
}

uint saved_gates() {
  if (kCell == kLstmCell) return 5u;
  return kCell == kResetAfter ? 4u : kCell == kResetBefore ? 3u : 0u;
}

void run_cell(uint row, uint unit) {
  if (!has_step(record.lengths, record.step, row)) {
    store(kType, record.y, row, unit, vec4(0.0));
    [[unroll]] for (uint gate = 0u; gate < 5u; ++gate) {
      if (gate < saved_gates()) store_gate(row, unit, gate, vec4(0.0));
    }
    return;
  }
  vec4 y;
  if (kCell == kLstmCell) {
    y = run_lstm(row, unit);
  } else if (kCell == kResetAfter || kCell == kResetBefore) {
    y = run_gru(row, unit);
  } else {
    y = run_simple(row, unit);
  }
  store(kType, record.y, row, unit, y);
  store_to(kType, record.h, place_of_state(row, unit), y);
}

void run_reset(uint row, uint unit) {
  const vec4 r = sigmoid_of(sum_of_gate(row, unit, 1u));
  const uint64_t place = place_of_state(row, unit);
  store_sums(record.kept, place, r * load_from(kType, record.h, place));
}

void main() {
  if (kStage == kLengths) {
    run_lengths();
  } else if (kStage == kOffsets) {
    run_offsets();
  } else {
    const uint units = record.hidden / kUnits, number = invocation();
    if (number >= record.rows * units) return;
    const uint row = number / units, unit = (number - row * units) * kUnits;
    if (kStage == kReset) {
      run_reset(row, unit);
    } else {
      run_cell(row, unit);
    }
  }
}
