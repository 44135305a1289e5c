#version 460
#extension GL_GOOGLE_include_directive : require
// Copies between kinds of numbers that map.comp does not combine: f32 (with f16 and bf16), f64 and
// integers. Each conversion rounds once. A value with too many bits for an intermediate dtype is
// rounded to odd: its last bit says that bits were dropped.
//
// The shader is compiled for each pair of a source and a destination.
#include "prelude.glsl"
#include "element.glsl"

layout(constant_id = 1) const uint kRank = 1;
layout(constant_id = 2) const uint kToType = 14;
layout(constant_id = 3) const uint kFromType = 14;

struct Operand {
  uint64_t address;
  int64_t strides[8];  // In bytes, the innermost axis first.
};

BP_RECORD {
  uint64_t reserved;
  uint64_t count;
  uint extents[8];
  Operand operands[2];
} BP_RECORD_NAME;

#if defined(COMPUTE_F64_TO_F32) || defined(COMPUTE_F64_TO_I64) || defined(COMPUTE_F32_TO_F64) || \
    defined(COMPUTE_I64_TO_F64)
#include "float64.glsl"
#endif

// Returns a float with a sign rounded to odd, by how its magnitude was rounded.
float signed_odd(float nearest, bool is_above, bool is_exact) {
  const uint sign = floatBitsToUint(nearest) & 0x80000000u;
  return uintBitsToFloat(floatBitsToUint(to_odd(abs(nearest), is_above, is_exact)) | sign);
}

void convert(uint64_t to, uint64_t from) {
#if defined(COMPUTE_F32_TO_I64)
  const float value = load_f32(kFromType, from);
  store_i64(kToType, to, int64_t(value));
#elif defined(COMPUTE_F64_TO_I64)
  store_i64(kToType, to, int64_t(load_f64(from)));
#elif defined(COMPUTE_F32_TO_F64)
  store_f64(to, double(load_f32(kFromType, from)));
#elif defined(COMPUTE_I64_TO_F64)
  store_f64(to, double(load_i64(kFromType, from)));
#elif defined(COMPUTE_I64_TO_F32)
  const int64_t value = load_i64(kFromType, from);
  float result = float(value);
  if (kToType != BP_F32 && kFromType == BP_I32) {
    // Lavapipe loses the sign of an i32 that is widened, so its magnitude has 32 bits.
    const uint magnitude = uint(abs(int(value))), back = uint(abs(result));
    result = signed_odd(result, back > magnitude, back == magnitude);
  } else if (kToType != BP_F32 && kFromType == BP_I64) {
    const uint64_t magnitude = uint64_t(value < 0l ? -value : value);
    const float size = abs(result);
    const uint64_t back = size < 9.2e18 ? uint64_t(size) : 0x8000000000000000ul;
    result = signed_odd(result, back > magnitude, back == magnitude);
  }
  store_f32(kToType, to, result);
#elif defined(COMPUTE_F64_TO_F32)
  store_f32(kToType, to, narrow_f64(kToType, load_f64(from)));
#endif
}

void main() {
  const uint index = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (index >= uint(record.count)) return;
  uint64_t to = record.operands[0].address, from = record.operands[1].address;
  uint rest = index;
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= kRank) continue;
    const uint extent = record.extents[axis];
    const uint next = rest / extent;
    const int64_t place = int64_t(uint64_t(rest - next * extent));
    rest = next;
    to += uint64_t(place * record.operands[0].strides[axis]);
    from += uint64_t(place * record.operands[1].strides[axis]);
  }
  convert(to, from);
}
