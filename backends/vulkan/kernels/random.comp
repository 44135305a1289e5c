#version 460
#extension GL_GOOGLE_include_directive : require
// random_bits, uniform, normal and dropout. A block of Philox gives four words, one for each of four
// elements in row-major order. An invocation computes one block.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "axes.glsl"
#include "philox.glsl"

layout(constant_id = 1) const uint kOp = 0;
layout(constant_id = 2) const uint kType = 14;
layout(constant_id = 3) const uint kRank = 1;

const uint kBits = 0u, kUniform = 1u, kNormal = 2u, kDropout = 3u;

BP_RECORD {
  uint64_t y, x;
  uint64_t seed_address, offset_address;  // If 0, the value is here.
  uint64_t seed, offset;
  uint64_t count;
  float mean, deviation;
  uint threshold;  // A word whose upper 24 bits are below it drops its element.
  float scale;     // For the elements that are kept.
  uint extents[8];
  int64_t y_strides[8], x_strides[8];  // In bytes, the innermost axis first.
} BP_RECORD_NAME;

float uniform_f32(uint word) { return float(word >> 8) * 5.9604644775390625e-8; }

// Returns a uniform number with as many bits as the fraction of the dtype and its hidden bit, so
// that every number is exact.
float uniform_of(uint word) {
  if (kType == BP_F16) return float(word >> 21) * 4.8828125e-4;
  if (kType == BP_BF16) return float(word >> 24) * 3.90625e-3;
  return uniform_f32(word);
}

// Returns two standard normal numbers, made from two uniform ones (Box and Muller, 1958). The angle
// is counted in quarter turns, and the nearest whole number of them is subtracted exactly, so that
// the series of sine and cosine are short.
vec2 normal_pair(float u1, float u2) {
  const float radius = sqrt(-2.0 * log_f32(1.0 - u1));
  const float turns = 4.0 * u2, whole = roundEven(turns);
  const float angle = (turns - whole) * 1.57079632679489661923, z = angle * angle;
  float s = 1.0 / 362880.0, c = -1.0 / 3628800.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = angle + angle * (s * z);
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = 1.0 - z * (0.5 - z * c);
  const uint quarter = uint(whole) & 3u;
  const bool is_odd = (quarter & 1u) != 0u;
  float cosine = is_odd ? s : c, sine = is_odd ? c : s;
  if (quarter == 1u || quarter == 2u) cosine = -cosine;
  if (quarter >= 2u) sine = -sine;
  return radius * vec2(cosine, sine);
}

void main() {
  const uint block = group_number() * kLocalSize + gl_LocalInvocationID.x;
  const uint64_t first = 4ul * uint64_t(block), count = record.count;
  if (first >= count) return;
  uint64_t seed = record.seed, offset = record.offset;
  if (record.seed_address != 0ul) seed = Bytes8(record.seed_address).value;
  if (record.offset_address != 0ul) offset = Bytes8(record.offset_address).value;
  const uvec4 words = random_words(seed, offset, uint64_t(block));
  vec4 normals;
  if (kOp == kNormal) {
    normals.xy = normal_pair(uniform_f32(words.x), uniform_f32(words.y));
    normals.zw = normal_pair(uniform_f32(words.z), uniform_f32(words.w));
  }
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    const uint i = 4u * block + k;
    if (uint64_t(i) >= count) continue;
    const uint64_t to = record.y + offset_of(i, kRank, record.extents, record.y_strides);
    if (kOp == kBits) {
      Bytes4(to).value = words[k];
    } else if (kOp == kUniform) {
      store_f32(kType, to, uniform_of(words[k]));
    } else if (kOp == kNormal) {
      store_f32(kType, to, record.mean + record.deviation * normals[k]);
    } else {
      float value = 0.0;
      if (words[k] >> 8 >= record.threshold) {
        const uint64_t from = record.x + offset_of(i, kRank, record.extents, record.x_strides);
        value = load_f32(kType, from) * record.scale;
      }
      store_f32(kType, to, value);
    }
  }
}
