#version 460
#extension GL_GOOGLE_include_directive : require
// tril, triu and one_hot. Each element of y has a number, which grows by a constant along each
// axis: the distance from the diagonal, or the class. Elements keep their bits, and 0 has the same
// bits in all dtypes.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"

// The ops, as in places.cpp.
const uint kTril = 0u, kTriu = 1u, kOneHot = 2u;

layout(constant_id = 1) const uint kSize = 4;  // The bytes of an element of y.
layout(constant_id = 2) const uint kRank = 1;
layout(constant_id = 3) const uint kOp = 0;
layout(constant_id = 4) const uint kIndexType = 7;  // It is i64 or i32, for one_hot.

BP_RECORD {
  uint64_t y, x;  // x is the tensor of indices for one_hot.
  uint64_t count;
  uint64_t one;    // The bits of 1, for one_hot.
  int64_t limit;   // The number of the diagonal, for the triangles.
  uint extents[8];
  int64_t y_strides[8], x_strides[8], number_strides[8];  // The first two are in bytes.
} BP_RECORD_NAME;

void main() {
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(i) >= record.count) return;
  const int64_t number = int64_t(offset_of(i, kRank, record.extents, record.number_strides));
  const uint64_t from = record.x + offset_of(i, kRank, record.extents, record.x_strides);
  uint64_t bits = 0ul;
  if (kOp == kOneHot) {
    if (load_i64(kIndexType, from) == number) bits = record.one;
  } else if (kOp == kTril ? number <= record.limit : number >= record.limit) {
    bits = load_wide_bits(kSize, from);
  }
  store_wide_bits(kSize, record.y + offset_of(i, kRank, record.extents, record.y_strides), bits);
}
