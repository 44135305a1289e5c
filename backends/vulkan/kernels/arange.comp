#version 460
#extension GL_GOOGLE_include_directive : require
// arange of integers: start + i * step in i64, which wraps.
#include "prelude.glsl"
#include "element.glsl"

layout(constant_id = 1) const uint kType = 7;

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Record {
  uint64_t y;
  uint64_t start_address, step_address;  // 0: the value is here.
  int64_t start, step;
  int64_t stride;  // In bytes.
  uint64_t count;
};

void main() {
  Record record = Record(push.record);
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(i) >= record.count) return;
  int64_t start = record.start, step = record.step;
  if (record.start_address != 0ul) start = load_i64(kType, record.start_address);
  if (record.step_address != 0ul) step = load_i64(kType, record.step_address);
  const int64_t place = int64_t(uint64_t(i));
  store_i64(kType, record.y + uint64_t(place * record.stride), start + place * step);
}
