#version 460
#extension GL_GOOGLE_include_directive : require
// Conversions of f32 from and to the blocks of a file. To strides, an invocation decodes an element.
// To blocks, an invocation encodes a block of 32 elements, from strides or from other blocks, in the
// steps of the formats' authors: the scale comes from the element of the largest magnitude or from
// the range, and each quotient is rounded to the nearest code.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"
#include "blocks.glsl"

layout(constant_id = 1) const uint kFrom = 0;  // The number of a format, or 0 for strides.
layout(constant_id = 2) const uint kTo = 0;
layout(constant_id = 3) const uint kRank = 1;

const uint kElements = 32u;

BP_RECORD {
  uint64_t from, to;
  uint64_t count;  // The elements that are decoded, or the blocks that are encoded.
  uint extents[8];
  int64_t strides[8];  // In bytes, the innermost axis first: of the side by strides.
} BP_RECORD_NAME;

float load_element(uint i) {
  if (kFrom != 0u) return number_in_blocks(kFrom, record.from, uint64_t(i));
  return Float32(record.from + offset_of(i, kRank, record.extents, record.strides)).value;
}

float inverse(float d) { return d == 0.0 ? 0.0 : 1.0 / d; }

// Returns x cut to an integer from 0 to `most`. NaN gives 0.
uint cut(float x, uint most) {
  if (!(x > 0.0)) return 0u;
  return x < float(most) ? uint(x) : most;
}

void put_half(uint64_t block, uint at, float x) {
  Bytes2(block + uint64_t(at)).value = uint16_t(f32_to_f16(x));
}

void put_byte(uint64_t block, uint at, uint value) {
  Bytes1(block + uint64_t(at)).value = uint8_t(value);
}

// Writes codes of four or five bits. The fifth bits lie in front of the others.
void put_codes(uint64_t block, uint at, uint codes[kElements], bool has_fifth) {
  if (has_fifth) {
    [[unroll]] for (uint byte = 0u; byte < 4u; ++byte) {
      uint fifths = 0u;
      [[unroll]] for (uint i = 0u; i < 8u; ++i) fifths |= codes[8u * byte + i] >> 4 << i;
      put_byte(block, at + byte, fifths);
    }
    at += 4u;
  }
  [[unroll]] for (uint i = 0u; i < kElements / 2u; ++i) {
    put_byte(block, at + i, (codes[i] & 15u) | (codes[i + kElements / 2u] & 15u) << 4);
  }
}

// The element of the largest magnitude becomes the lowest code.
void encode_signed(uint64_t block, float x[kElements], bool has_fifth) {
  const uint middle = has_fifth ? 16u : 8u;
  float extreme = x[0];
  [[unroll]] for (uint i = 1u; i < kElements; ++i) {
    if (abs(x[i]) > abs(extreme)) extreme = x[i];
  }
  const float d = extreme / -float(middle), inverted = inverse(d);
  uint codes[kElements];
  [[unroll]] for (uint i = 0u; i < kElements; ++i) {
    codes[i] = cut(x[i] * inverted + (float(middle) + 0.5), 2u * middle - 1u);
  }
  put_half(block, 0u, d);
  put_codes(block, 2u, codes, has_fifth);
}

// The codes reach from the least element to the largest.
void encode_range(uint64_t block, float x[kElements], bool has_fifth) {
  const uint most = has_fifth ? 31u : 15u;
  float least = x[0], largest = x[0];
  [[unroll]] for (uint i = 1u; i < kElements; ++i) {
    least = min(least, x[i]);
    largest = max(largest, x[i]);
  }
  const float d = (largest - least) / float(most), inverted = inverse(d);
  uint codes[kElements];
  [[unroll]] for (uint i = 0u; i < kElements; ++i) {
    codes[i] = cut((x[i] - least) * inverted + 0.5, most);
  }
  put_half(block, 0u, d);
  put_half(block, 2u, least);
  put_codes(block, 4u, codes, has_fifth);
}

// A quotient in the middle between two codes becomes the one farther from 0.
void encode_bytes(uint64_t block, float x[kElements]) {
  float most = 0.0;
  [[unroll]] for (uint i = 0u; i < kElements; ++i) most = max(most, abs(x[i]));
  const float d = most / 127.0, inverted = inverse(d);
  [[unroll]] for (uint i = 0u; i < kElements; ++i) {
    const float quotient = x[i] * inverted;
    const int magnitude = int(cut(abs(quotient) + 0.5, 127u));
    put_byte(block, 2u + i, uint(quotient < 0.0 ? -magnitude : magnitude));
  }
  put_half(block, 0u, d);
}

void encode_block(uint number) {
  float x[kElements];
  [[unroll]] for (uint i = 0u; i < kElements; ++i) x[i] = load_element(number * kElements + i);
  const uint64_t block = record.to + uint64_t(number) * uint64_t(size_of_block(kTo).bytes);
  if (kTo == kQ8_0) {
    encode_bytes(block, x);
  } else if (kTo == kQ4_1 || kTo == kQ5_1) {
    encode_range(block, x, kTo == kQ5_1);
  } else {
    encode_signed(block, x, kTo == kQ5_0);
  }
}

void main() {
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (i >= uint(record.count)) return;
  if (kTo != 0u) {
    encode_block(i);
  } else {
    const uint64_t to = record.to + offset_of(i, kRank, record.extents, record.strides);
    Float32(to).value = load_element(i);
  }
}
