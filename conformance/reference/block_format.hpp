// Oracle of the formats of backplane/block_formats.def: one element of a block at a time, from the
// definition of its format (api/docs/layouts.md). Every step is computed in f64 and rounded to f32
// once, which gives the bits of f32 arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backplane/base.h"

namespace bp::conformance::reference {

using Block = const uint8_t*;

// A number in a block, of `width` bits above the lowest `shift` bits of byte `byte`.
constexpr int bits_at(Block block, int byte, int shift, int width) {
  return block[byte] >> shift & ((1 << width) - 1);
}

constexpr int signed_at(Block block, int byte) {
  return block[byte] < 128 ? block[byte] : block[byte] - 256;
}

// Returns the f16 at a byte. Infinity and NaN stay what they are.
inline double half_at(Block block, int byte) {
  const int word = block[byte] | block[byte + 1] << 8;
  const int exponent = word >> 10 & 31, fraction = word & 1023;
  double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) value = fraction == 0 ? HUGE_VAL : std::nan("");
  return word >> 15 != 0 ? -value : value;
}

inline double times(double a, double b) { return static_cast<float>(a * b); }
inline double plus(double a, double b) { return static_cast<float>(a + b); }

// ---- Elements -----------------------------------------------------------------------------------

// Returns the code of element i of a block of 32, whose nibbles begin at a byte.
inline int nibble(Block block, int first, int i) {
  return bits_at(block, first + i % 16, i / 16 * 4, 4);
}
inline int fifth_bit(Block block, int first, int i) {
  return bits_at(block, first + i / 8, i % 8, 1);
}

inline double q4_0(Block b, int i) { return times(nibble(b, 2, i) - 8, half_at(b, 0)); }
inline double q4_1(Block b, int i) {
  return plus(times(nibble(b, 4, i), half_at(b, 0)), half_at(b, 2));
}
inline double q5_0(Block b, int i) {
  return times(nibble(b, 6, i) + 16 * fifth_bit(b, 2, i) - 16, half_at(b, 0));
}
inline double q5_1(Block b, int i) {
  return plus(times(nibble(b, 8, i) + 16 * fifth_bit(b, 4, i), half_at(b, 0)), half_at(b, 2));
}
inline double q8_0(Block b, int i) { return times(signed_at(b, 2 + i), half_at(b, 0)); }

// The place of element i of a block of 256: a half, a quarter of the half, and an element of it.
struct Place {
  explicit constexpr Place(int i) : half(i / 128), quarter(i % 128 / 32), lane(i % 32) {}
  int half, quarter, lane;
};

inline double q2_k(Block b, int i) {
  const Place at(i);
  const int code = bits_at(b, 16 + 32 * at.half + at.lane, 2 * at.quarter, 2);
  const double scale = times(half_at(b, 80), bits_at(b, i / 16, 0, 4));
  const double minimum = times(half_at(b, 82), bits_at(b, i / 16, 4, 4));
  return plus(times(scale, code), -minimum);
}

inline double q3_k(Block b, int i) {
  const Place at(i);
  const int part = i / 16;
  const int code = bits_at(b, 32 + 32 * at.half + at.lane, 2 * at.quarter, 2) +
                   4 * bits_at(b, at.lane, 4 * at.half + at.quarter, 1) - 4;
  const int packed =
      bits_at(b, 96 + part % 8, part / 8 * 4, 4) + 16 * bits_at(b, 104 + part % 4, part / 4 * 2, 2);
  return times(times(half_at(b, 108), packed - 32), code);
}

// Returns a scale of 6 bits, of part 0 to 7, or a minimum if `is_minimum`; q4_k and q5_k have both.
inline int six_bits(Block b, int part, bool is_minimum) {
  const int own = 4 + part % 4 + (is_minimum ? 4 : 0);
  if (part < 4) return bits_at(b, own, 0, 6);
  return bits_at(b, 12 + part % 4, is_minimum ? 4 : 0, 4) + 16 * bits_at(b, own, 6, 2);
}

inline double q45_k(Block b, int i, int code) {
  const double scale = times(half_at(b, 0), six_bits(b, i / 32, false));
  return plus(times(scale, code), -times(half_at(b, 2), six_bits(b, i / 32, true)));
}
inline double q4_k(Block b, int i) {
  return q45_k(b, i, bits_at(b, 16 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4));
}
inline double q5_k(Block b, int i) {
  return q45_k(b, i,
               bits_at(b, 48 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4) +
                   16 * bits_at(b, 16 + i % 32, i / 32, 1));
}

inline double q6_k(Block b, int i) {
  const Place at(i);
  const int low = bits_at(b, 64 * at.half + at.quarter % 2 * 32 + at.lane, at.quarter / 2 * 4, 4);
  const int high = bits_at(b, 128 + 32 * at.half + at.lane, 2 * at.quarter, 2);
  return times(times(half_at(b, 208), signed_at(b, 192 + i / 16)), low + 16 * high - 32);
}

// ---- Formats ------------------------------------------------------------------------------------

struct BlockFormat {
  std::string_view name;
  int64_t elements, bytes;
  bp_dtype scale_dtype;
  double (*element)(Block block, int i);
};

inline constexpr BlockFormat kBlockFormats[] = {
#define BP_BLOCK_FORMAT(id, number, name, elements, bytes, scale_dtype) \
  {name, elements, bytes, scale_dtype, id},
#include "backplane/block_formats.def"
};

// Returns the bytes at which the f16 of a block begin.
inline std::vector<int> half_fields(const BlockFormat& format) {
  if (format.name == "ggml.q2_k") return {80, 82};
  if (format.name == "ggml.q3_k") return {108};
  if (format.name == "ggml.q6_k") return {208};
  const bool has_minimum = format.name.ends_with("_1") || format.name.ends_with("_k");
  return has_minimum ? std::vector<int>{0, 2} : std::vector<int>{0};
}

// Returns how far encoding may move an element of the block `x`, whose elements are within the
// finite numbers of f16. It is 0 for formats that are only decoded.
inline double encoding_bound(const BlockFormat& format, std::span<const float> x) {
  const auto [least, largest] = std::ranges::minmax(x);
  const double range = double{largest} - least;
  const double magnitude = std::max(std::fabs(largest), std::fabs(least));
  double step = 0;
  if (format.name == "ggml.q4_0") step = magnitude / 8;
  if (format.name == "ggml.q5_0") step = magnitude / 16;
  if (format.name == "ggml.q8_0") step = magnitude / 254;
  if (format.name == "ggml.q4_1") step = range / 30;
  if (format.name == "ggml.q5_1") step = range / 62;
  const bool is_encoded = format.elements == 32;
  return is_encoded ? step + magnitude / 512 + 0x1p-18 : 0;
}

}  // namespace bp::conformance::reference
