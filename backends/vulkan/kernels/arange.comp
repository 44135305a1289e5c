#version 460
#extension GL_GOOGLE_include_directive : require
// arange: start + i * step, in i64, which wraps, or in f64, rounded once. The shader is compiled
// for each of the two.
#include "prelude.glsl"
#include "element.glsl"
#if defined(COMPUTE_F64)
#include "float64.glsl"
#endif

layout(constant_id = 1) const uint kType = 7;

BP_RECORD {
  uint64_t y;
  uint64_t start_address, step_address;  // Elements in the dtype of y; if 0, the values follow.
  uint64_t start, step;
  int64_t stride;  // In bytes.
  uint64_t count;
} BP_RECORD_NAME;

#if defined(COMPUTE_F64)
#define VALUE double
VALUE load(uint64_t address) {
  return kType == BP_F64 ? load_f64(address) : double(load_f32(kType, address));
}
void store(uint64_t address, VALUE value) {
  if (kType == BP_F64) {
    store_f64(address, value);
  } else {
    store_f32(kType, address, narrow_f64(kType, value));
  }
}
#else
#define VALUE int64_t
VALUE load(uint64_t address) { return load_i64(kType, address); }
void store(uint64_t address, VALUE value) { store_i64(kType, address, value); }
#endif

void main() {
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(i) >= record.count) return;
  const uint64_t place = uint64_t(int64_t(uint64_t(i)) * record.stride);
  // The values of the call are in the record, from byte 24 on.
  const uint64_t start = record.start_address == 0ul ? push.arguments + 24ul : record.start_address;
  const uint64_t step = record.step_address == 0ul ? push.arguments + 32ul : record.step_address;
  precise const VALUE distance = VALUE(i) * load(step);
  precise const VALUE value = load(start) + distance;
  store(record.y + place, value);
}
