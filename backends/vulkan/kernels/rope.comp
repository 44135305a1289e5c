#version 460
#extension GL_GOOGLE_include_directive : require
// rope and its gradient. An invocation rotates one pair (a, b) of the last axis to (a * cos - b *
// sin, b * cos + a * sin), or by the opposite angle. Elements that are not in a pair are copied.
//
//   halves       a is element i, b element i + pairs
//   interleaved  a is element 2 i, b element 2 i + 1
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"

layout(constant_id = 1) const uint kType = 14;
layout(constant_id = 2) const uint kRank = 1;
layout(constant_id = 3) const uint kIsInterleaved = 0;
layout(constant_id = 4) const uint kIsBackward = 0;

// The operands are y, x, cos and sin; cos and sin are f32.
BP_RECORD {
  uint64_t addresses[4];
  int64_t steps[4];  // In bytes, along the last axis.
  uint count;        // The invocations: a row has one for each pair and each other element.
  uint row_size, pairs;
  uint reserved;
  uint extents[8];  // The other axes' extents.
  int64_t strides[4][8];
} BP_RECORD_NAME;

uint64_t place(uint64_t row, int64_t step, uint i) {
  return row + uint64_t(step * int64_t(uint64_t(i)));
}

void main() {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (number >= record.count) return;
  const uint pairs = record.pairs, of_row = record.row_size - pairs;
  const uint row = number / of_row, i = number - row * of_row;
  uint64_t rows[4];
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    rows[k] = record.addresses[k] + offset_of(row, kRank, record.extents, record.strides[k]);
  }
  const int64_t y_step = record.steps[0], x_step = record.steps[1];
  if (i >= pairs) {
    const float value = load_f32(kType, place(rows[1], x_step, pairs + i));
    store_f32(kType, place(rows[0], y_step, pairs + i), value);
    return;
  }
  const uint first = kIsInterleaved != 0u ? 2u * i : i;
  const uint second = kIsInterleaved != 0u ? first + 1u : first + pairs;
  const float a = load_f32(kType, place(rows[1], x_step, first));
  const float b = load_f32(kType, place(rows[1], x_step, second));
  const float c = load_f32(BP_F32, place(rows[2], record.steps[2], i));
  float s = load_f32(BP_F32, place(rows[3], record.steps[3], i));
  if (kIsBackward != 0u) s = -s;
  store_f32(kType, place(rows[0], y_step, first), a * c - b * s);
  store_f32(kType, place(rows[0], y_step, second), b * c + a * s);
}
