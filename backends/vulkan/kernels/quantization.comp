#version 460
#extension GL_GOOGLE_include_directive : require
// quantize and dequantize. An invocation takes the codes that fill whole bytes: 8 codes of fewer than
// 8 bits that are written, and one code otherwise.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "quantized.glsl"
float quotient_near(float a, float b) { return a / b; }
float root_near(float x) { return sqrt(x); }
#include "rounded.glsl"

layout(constant_id = 1) const uint kOp = 0;
layout(constant_id = 2) const uint kFloatType = 14;
layout(constant_id = 3) const uint kCodeType = 4;
layout(constant_id = 4) const uint kScaleType = 14;
layout(constant_id = 5) const uint kHasZero = 0;
layout(constant_id = 6) const uint kRank = 1;

const uint kQuantize = 0u;
const uint kCodesOfGroup = 8u;

BP_RECORD {
  uint64_t floats, codes, scale, zero, tensor_scale;
  uint64_t count;
  uint extents[8];  // In row-major order, the innermost axis first.
  uint blocks[8];   // The elements along each axis that share a scale.
  int64_t float_strides[8], scale_strides[8];  // In bytes.
  int64_t code_strides[8], zero_strides[8];    // In bits.
} BP_RECORD_NAME;

// Where an element and its block lie.
struct Place {
  uint64_t number, scale;  // Addresses.
  int64_t code, zero;      // Bits.
};

Place place_of(uint element) {
  Place place = Place(record.floats, record.scale, 0l, 0l);
  uint rest = element;
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= kRank) continue;
    const uint next = rest / record.extents[axis], index = rest - next * record.extents[axis];
    rest = next;
    const int64_t i = int64_t(uint64_t(index)), b = int64_t(uint64_t(index / record.blocks[axis]));
    place.number += uint64_t(i * record.float_strides[axis]);
    place.scale += uint64_t(b * record.scale_strides[axis]);
    place.code += i * record.code_strides[axis];
    place.zero += b * record.zero_strides[axis];
  }
  return place;
}

float zero_of(Place place) {
  if (kHasZero == 0u) return 0.0;
  const uint code = load_code(bits_of_code(kCodeType), record.zero, place.zero);
  return number_of_code(kCodeType, code);
}

uint quantized(Place place) {
  const float quotient = divide_f32(load_f32(kFloatType, place.number),
                                    load_scale(kScaleType, place.scale, record.tensor_scale));
  if (!is_integer_code(kCodeType)) return code_of_float(kCodeType, quotient);
  return code_of_integer(kCodeType, quotient, zero_of(place));
}

// Writes the codes of a group without gaps. The bits behind the last code keep their value.
void quantize_group(uint first, uint count) {
  const uint bits = bits_of_code(kCodeType);
  uint64_t word = 0ul;
  [[unroll]] for (uint i = 0u; i < kCodesOfGroup; ++i) {
    if (i < count) word |= uint64_t(quantized(place_of(first + i))) << uint64_t(i * bits);
  }
  const uint64_t begin = record.codes + (uint64_t(first) * uint64_t(bits) >> 3);
  [[unroll]] for (uint i = 0u; i < kCodesOfGroup; ++i) {
    if (8u * i >= count * bits) continue;
    const uint64_t address = begin + uint64_t(i);
    uint value = uint(word >> uint64_t(8u * i)) & 0xffu;
    const uint left = count * bits - 8u * i;
    if (left < 8u) value |= uint(Bytes1(address).value) >> left << left;
    Bytes1(address).value = uint8_t(value);
  }
}

void dequantize_one(uint element) {
  const Place place = place_of(element);
  const uint code = load_code(bits_of_code(kCodeType), record.codes, place.code);
  const float difference = number_of_code(kCodeType, code) - zero_of(place);
  const float scale = load_scale(kScaleType, place.scale, record.tensor_scale);
  store_f32(kFloatType, place.number, difference * scale);
}

void main() {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  const uint count = uint(record.count);
  const bool has_groups = kOp == kQuantize && bits_of_code(kCodeType) != 8u;
  const uint first = has_groups ? number * kCodesOfGroup : number;
  if (first >= count) return;
  if (has_groups) {
    quantize_group(first, min(kCodesOfGroup, count - first));
  } else if (kOp == kQuantize) {
    const Place place = place_of(first);
    Bytes1(record.codes + uint64_t(place.code >> 3)).value = uint8_t(quantized(place));
  } else {
    dequantize_one(first);
  }
}
