#version 460
#extension GL_GOOGLE_include_directive : require
// searchsorted: one invocation finds the place of a value in its row by bisection. No loop has more
// than 64 trips. The shader is compiled for each class of dtypes.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"

layout(constant_id = 1) const uint kType = 14;
layout(constant_id = 2) const uint kRank = 1;
layout(constant_id = 3) const uint kIsRight = 0;
layout(constant_id = 4) const uint kIndexType = 7;

BP_RECORD {
  uint64_t values, y, sorted;
  uint64_t count;   // The values.
  uint64_t size;    // The elements of a row of `sorted`.
  int64_t step;     // In bytes, along such a row.
  uint extents[8];
  int64_t value_strides[8], y_strides[8];
  int64_t row_strides[8];  // From a value to its row.
} BP_RECORD_NAME;

#include "keys.glsl"

void main() {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(number) >= record.count) return;
  const uint64_t key =
      key_of(record.values + offset_of(number, kRank, record.extents, record.value_strides));
  const uint64_t row = record.sorted + offset_of(number, kRank, record.extents, record.row_strides);
  int64_t begin = 0l, count = int64_t(record.size);
  while (count > 0l) {
    const int64_t half_of = count >> 1;
    const uint64_t own = key_of(row + uint64_t((begin + half_of) * record.step));
    if (own < key || (kIsRight != 0u && own == key)) {
      begin += half_of + 1l;
      count -= half_of + 1l;
    } else {
      count = half_of;
    }
  }
  store_i64(kIndexType, record.y + offset_of(number, kRank, record.extents, record.y_strides),
            begin);
}
