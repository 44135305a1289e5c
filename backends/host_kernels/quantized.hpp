// The elements of quantised tensors: codes of 2 to 8 bits, packed from the low bits of a byte up,
// and what each of them stands for.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backplane/base.h"

namespace bp::kernels {

// How the codes of a dtype are numbers. An integer has no exponent bits.
struct CodeFormat {
  int bits = 0;
  int exponent_bits = 0, fraction_bits = 0, bias = 0;
  bool has_sign = true;
  float largest = 0;  // For a float; its code is `largest_code`.
  uint32_t largest_code = 0;
  uint32_t nan_code = 0;  // 0 if no code is NaN.

  constexpr bool is_integer() const { return exponent_bits == 0; }
  constexpr int low() const { return has_sign ? -(1 << (bits - 1)) : 0; }
  constexpr int high() const { return (1 << (has_sign ? bits - 1 : bits)) - 1; }
};

// Returns the format of a quantised dtype or of a scale of 8 bits; one of 0 bits for others.
constexpr CodeFormat code_format(bp_dtype dtype) {
  switch (dtype) {
    case BP_I8:
      return {.bits = 8};
    case BP_U8:
      return {.bits = 8, .has_sign = false};
    case BP_I4:
      return {.bits = 4};
    case BP_U4:
      return {.bits = 4, .has_sign = false};
    case BP_I2:
      return {.bits = 2};
    case BP_U2:
      return {.bits = 2, .has_sign = false};
    case BP_F8E4M3FN:
      return {8, 4, 3, 7, true, 448, 0x7e, 0x7f};
    case BP_F8E5M2:
      return {8, 5, 2, 15, true, 57344, 0x7b, 0x7e};
    case BP_F6E2M3:
      return {6, 2, 3, 1, true, 7.5F, 0x1f, 0};
    case BP_F6E3M2:
      return {6, 3, 2, 3, true, 28, 0x1f, 0};
    case BP_F4E2M1:
      return {4, 2, 1, 1, true, 6, 7, 0};
    case BP_F8E8M0FNU:
      return {8, 8, 0, 127, false, 0x1p127F, 254, 255};
    default:
      return {};
  }
}

// Returns 2^exponent, also where it is subnormal.
constexpr float power_of_two(int exponent) {
  const int biased = exponent + 127;
  return std::bit_cast<float>(biased > 0 ? static_cast<uint32_t>(biased) << 23
                                         : uint32_t{1} << (22 + biased));
}

// Returns the number that a code stands for. Every one is an f32.
constexpr float value_of_code(const CodeFormat& f, uint32_t code) {
  const bool is_negative = f.has_sign && code >> (f.bits - 1) != 0;
  if (f.is_integer()) {
    return static_cast<float>(static_cast<int>(code) - (is_negative ? 1 << f.bits : 0));
  }
  const uint32_t magnitude = f.has_sign ? code & ((1u << (f.bits - 1)) - 1) : code;
  if (magnitude > f.largest_code) {
    const bool is_infinite = f.nan_code != f.largest_code + 1 && magnitude == f.largest_code + 1;
    const float end = is_infinite ? std::numeric_limits<float>::infinity()
                                  : std::numeric_limits<float>::quiet_NaN();
    return is_negative ? -end : end;
  }
  const auto exponent = static_cast<int>(magnitude >> f.fraction_bits);
  const uint32_t fraction = magnitude & ((1u << f.fraction_bits) - 1);
  const bool is_subnormal = exponent == 0 && f.has_sign;
  const uint32_t digits = fraction + (is_subnormal ? 0 : 1u << f.fraction_bits);
  const int scale = (is_subnormal ? 1 : exponent) - f.bias - f.fraction_bits;
  const float value = static_cast<float>(digits) * power_of_two(scale);
  return is_negative ? -value : value;
}

// The numbers of all codes of a dtype. Dtypes that are not of codes, such as f32, have none.
struct CodeValues {
  explicit CodeValues(bp_dtype dtype) : format(code_format(dtype)) {
    const uint32_t count = format.bits == 0 ? 0 : 1u << format.bits;
    for (uint32_t code = 0; code < count; ++code) {
      values[code] = value_of_code(format, code);
    }
  }
  CodeFormat format;
  float values[256] = {};
};

// Returns the code of the value nearest to x, ties to even. A value beyond the largest becomes the
// largest one, and NaN becomes NaN, or 0 in a format without NaN.
inline uint32_t code_of_float(const CodeFormat& f, float x) {
  if (std::isnan(x)) return f.nan_code;
  const uint32_t sign = std::signbit(x) ? 1u << (f.bits - 1) : 0;
  const float magnitude = std::fabs(x);
  if (magnitude >= f.largest) return sign | f.largest_code;
  const int least = 1 - f.bias;  // The exponent of the smallest normal number.
  const int own = static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> 23) - 127;
  const int exponent = std::max(own, least);
  // The digits are below 2^(fraction_bits + 1), so that adding 2^23 rounds them to an integer.
  const float digits = magnitude * power_of_two(f.fraction_bits - exponent);
  const auto rounded = static_cast<uint32_t>((digits + 0x1p23F) - 0x1p23F);
  return sign | (rounded + (static_cast<uint32_t>(exponent - least) << f.fraction_bits));
}

// Returns the code of round(quotient) + zero, limited to the integers of the format. NaN counts as
// 0.
inline uint32_t code_of_integer(const CodeFormat& f, float quotient, float zero) {
  constexpr float kBeyond = 1024;  // With any zero it lies beyond every format.
  constexpr float kRounding = 0x1.8p23F;
  const float number = quotient == quotient ? quotient : 0;
  const float limited = std::min(std::max(number, -kBeyond), kBeyond);
  const float sum = (limited + kRounding) - kRounding + zero;
  const float stored =
      std::min(std::max(sum, static_cast<float>(f.low())), static_cast<float>(f.high()));
  return static_cast<uint32_t>(static_cast<int>(stored)) & ((1u << f.bits) - 1);
}

// Read and write the code that begins at `bit`, which may lie before `base`. A write keeps the
// other bits of the bytes.
inline uint32_t read_code(const std::byte* base, int64_t bit, int bits) {
  if (bits == 8) return static_cast<uint32_t>(base[bit >> 3]);
  const auto shift = static_cast<uint32_t>(bit & 7);
  uint32_t word = static_cast<uint32_t>(base[bit >> 3]);
  if (shift + static_cast<uint32_t>(bits) > 8) {
    word |= static_cast<uint32_t>(base[(bit >> 3) + 1]) << 8;
  }
  return word >> shift & ((1u << bits) - 1);
}

inline void write_code(std::byte* base, int64_t bit, int bits, uint32_t code) {
  if (bits == 8) {
    base[bit >> 3] = static_cast<std::byte>(code);
    return;
  }
  const auto shift = static_cast<uint32_t>(bit & 7);
  const uint32_t mask = ((1u << bits) - 1) << shift, word = code << shift;
  std::byte* const at = base + (bit >> 3);
  at[0] = (at[0] & static_cast<std::byte>(~mask)) | static_cast<std::byte>(word);
  if (shift + static_cast<uint32_t>(bits) > 8) {
    at[1] = (at[1] & static_cast<std::byte>(~(mask >> 8))) | static_cast<std::byte>(word >> 8);
  }
}

}  // namespace bp::kernels
