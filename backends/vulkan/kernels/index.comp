#version 460
#extension GL_GOOGLE_include_directive : require
// gather, index_select and embedding. Each element of y is the element of x at the same place,
// except that an index gives the place along one axis. Elements keep their bits.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"
#include "failure.glsl"

layout(constant_id = 1) const uint kSize = 4;       // The bytes of an element.
layout(constant_id = 2) const uint kIndexType = 7;  // It is i64 or i32.
layout(constant_id = 3) const uint kRank = 1;
layout(constant_id = 4) const uint kClamps = 0;

BP_RECORD {
  uint64_t y, x, indices, failure;
  uint64_t count;
  int64_t axis_stride;  // In bytes.
  int64_t axis_extent;
  uint extents[8];
  int64_t y_strides[8], x_strides[8], index_strides[8];  // Bytes; 0 if it does not move.
} BP_RECORD_NAME;

void main() {
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(i) >= record.count) return;
  const uint64_t place =
      record.indices + offset_of(i, kRank, record.extents, record.index_strides);
  const int64_t index = acting(load_i64(kIndexType, place), record.axis_extent, kClamps);
  if (!is_place(index, record.axis_extent)) {
    fail_with(record.failure, index, place);
    return;
  }
  const uint64_t from = record.x + offset_of(i, kRank, record.extents, record.x_strides) +
                        uint64_t(index * record.axis_stride);
  const uint64_t to = record.y + offset_of(i, kRank, record.extents, record.y_strides);
  store_wide_bits(kSize, to, load_wide_bits(kSize, from));
}
