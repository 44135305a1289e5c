#version 460
#extension GL_GOOGLE_include_directive : require
// Products with a weight of codes, y = a b^T: matmul_scaled, and linear and matmul whose weight lies
// in the blocks of a file. Elements are decoded when a slice of them is loaded, and the sums are f32.
//
// The axes of a before the last one are rows; there are several if they cannot be merged.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "quantized.glsl"
#include "blocks.glsl"

layout(constant_id = 1) const uint kTypeA = 14;
layout(constant_id = 2) const uint kTypeB = 4;  // If kFormatB is not 0, it is not used.
layout(constant_id = 3) const uint kTypeY = 14;
layout(constant_id = 4) const uint kTypeScaleA = 0;  // There is no scale if it is 0.
layout(constant_id = 5) const uint kTypeScaleB = 0;
layout(constant_id = 6) const uint kHasZero = 0;
layout(constant_id = 7) const uint kFormatB = 0;  // The number of a format of blocks.
layout(constant_id = 8) const uint kRank = 1;     // The axes of the rows.
// The elements that share a scale; 0 if all elements of the axis do.
layout(constant_id = 9) const uint kBlockA = 0;
layout(constant_id = 10) const uint kBlockB = 0;
layout(constant_id = 11) const uint kRowsOfBlockB = 1;
layout(constant_id = 12) const uint kActivation = 1;
layout(constant_id = 13) const uint kHasBias = 0;
layout(constant_id = 14) const uint kFewRows = 0;  // At least as many as there are; 0: a tile each.

BP_RECORD {
  uint64_t a, b, y, bias;
  uint64_t a_scale, b_scale, b_zero;
  uint64_t a_zero, a_tensor_scale, b_tensor_scale;  // 0: there is none.
  uint rows, cols, depth, reserved;
  uint extents[8], blocks[8];  // The axes of the rows, the innermost first.
  int64_t a_rows[8];                     // In bits.
  int64_t y_rows[8], a_scale_rows[8];    // In bytes.
  int64_t a_zero_rows[8], a_zero_k;           // In bits.
  int64_t a_k, b_n, b_k, b_zero_n, b_zero_k;  // In bits, or in elements if b lies in blocks.
  int64_t y_n, bias_n, a_scale_k, b_scale_n, b_scale_k;  // In bytes.
} BP_RECORD_NAME;

#include "activate.glsl"

int64_t wide(uint i) { return int64_t(uint64_t(i)); }
uint block_of(uint i, uint size) { return size == 0u ? 0u : i / size; }

// Where a row of a, of its scales and of y begins.
struct RowPlace {
  int64_t a, zero;  // Bits.
  uint64_t scale, y;
};

RowPlace row_place(uint row) {
  RowPlace place = RowPlace(0l, 0l, record.a_scale, record.y);
  uint rest = row;
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= kRank) continue;
    uint i = rest;
    if (axis + 1u < kRank) {
      rest = i / record.extents[axis];
      i -= rest * record.extents[axis];
    }
    place.a += wide(i) * record.a_rows[axis];
    place.y += uint64_t(wide(i) * record.y_rows[axis]);
    if (kTypeScaleA != 0u) {
      const int64_t block = wide(i / record.blocks[axis]);
      place.scale += uint64_t(block * record.a_scale_rows[axis]);
      place.zero += block * record.a_zero_rows[axis];
    }
  }
  return place;
}

float value_of_a(uint m, uint k) {
  const RowPlace row = row_place(m);
  const int64_t bit = row.a + wide(k) * record.a_k;
  if (kTypeScaleA == 0u) return load_f32(kTypeA, record.a + uint64_t(bit >> 3));
  float number = number_of_code(kTypeA, load_code(bits_of_code(kTypeA), record.a, bit));
  const int64_t block = wide(block_of(k, kBlockA));
  if (record.a_zero != 0ul) {
    const int64_t zero = row.zero + block * record.a_zero_k;
    number -= number_of_code(kTypeA, load_code(bits_of_code(kTypeA), record.a_zero, zero));
  }
  const uint64_t scale = row.scale + uint64_t(block * record.a_scale_k);
  return number * load_scale(kTypeScaleA, scale, record.a_tensor_scale);
}

float value_of_b(uint k, uint n) {
  const int64_t at = wide(n) * record.b_n + wide(k) * record.b_k;
  if (kFormatB != 0u) return number_in_blocks(kFormatB, record.b, uint64_t(at));
  float number = number_of_code(kTypeB, load_code(bits_of_code(kTypeB), record.b, at));
  const int64_t block_n = wide(block_of(n, kRowsOfBlockB)), block_k = wide(block_of(k, kBlockB));
  if (kHasZero != 0u) {
    const int64_t zero = block_n * record.b_zero_n + block_k * record.b_zero_k;
    number -= number_of_code(kTypeB, load_code(bits_of_code(kTypeB), record.b_zero, zero));
  }
  const int64_t scale = block_n * record.b_scale_n + block_k * record.b_scale_k;
  return number * load_scale(kTypeScaleB, record.b_scale + uint64_t(scale), record.b_tensor_scale);
}

void finish_value(uint m, uint n, float sum) {
  if (kHasBias != 0u) sum += load_f32(kTypeY, record.bias + uint64_t(wide(n) * record.bias_n));
  const uint64_t to = row_place(m).y + uint64_t(wide(n) * record.y_n);
  store_f32(kTypeY, to, activate(sum));
}

#define VALUE float
#define VALUES vec4
#define ALONG_K
#include "matmul_tile.glsl"
#include "matmul_rows.glsl"

void main() {
  if (kFewRows != 0u) {
    const uint first_n = group_number() * kColumnsOfGroup;
    if (first_n < record.cols) run_rows(first_n, record.rows, record.cols, record.depth);
    return;
  }
  const uint tiles_n = (record.cols + kTile - 1u) / kTile, number = group_number();
  const uint first_m = number / tiles_n * kTile;
  if (first_m >= record.rows) return;
  run_tile(first_m, number % tiles_n * kTile, record.rows, record.cols, record.depth);
}
