// Converts floats of 16 bits to numbers and back, and numbers to floats of fewer bits, because
// C++20 compilers need not have such types.
//
//               sign  exponent  fraction
//   f16           1       5        10     IEEE 754 binary16
//   bf16          1       8         7     the upper half of an f32
//   f8e4m3fn      1       4         3     these and the next ones are those of the OCP
//   f8e5m2        1       5         2
//   f6e2m3        1       2         3
//   f6e3m2        1       3         2
//   f4e2m1        1       2         1
//   f8e8m0fnu     0       8         0
//
// The file has only a header: the registry, the runtime and the mutants of the suite include it.
// Backends use backplane/shell/narrow.hpp. The oracle of the suite has its own conversion in
// conformance/numerics/dtype.cpp on purpose: it must not share a mistake with what it judges.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "backplane/base.h"

namespace bp::tensors {

// Returns whether values of this dtype are read as C++ numbers: f16, bf16, f32 and f64.
constexpr bool is_plain_float(bp_dtype dtype) { return dtype >= BP_F16 && dtype <= BP_F64; }

inline float f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

inline float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Returns the bits of the binary float, with this many bits of exponent and of fraction, that is
// nearest to `value`, ties to even. The value is rounded once. Through a float it would be rounded
// twice.
inline uint32_t narrow_bits(double value, int exponent_bits, int fraction_bits) {
  const uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + fraction_bits) : 0u;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  if (std::isnan(value)) return sign | infinity | 1u << (fraction_bits - 1);
  if (std::isinf(value)) return sign | infinity;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // The value in units of the last place. A carry out of the fraction raises the exponent.
  const auto units =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  const auto biased = static_cast<uint32_t>(exponent + bias - 1);
  const uint32_t bits = (biased << fraction_bits) + units;
  return sign | std::min(bits, infinity);
}
inline uint16_t f16_bits(double value) { return static_cast<uint16_t>(narrow_bits(value, 5, 10)); }
inline uint16_t bf16_bits(double value) { return static_cast<uint16_t>(narrow_bits(value, 8, 7)); }

// A float of at most 8 bits whose largest number and NaN have codes of their own. NaN has the code
// 0 in a format without NaN.
struct NarrowFloat {
  int exponent_bits, fraction_bits;
  uint32_t largest_code, nan_code;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

inline constexpr NarrowFloat kF8E4M3FN = {4, 3, 0x7e, 0x7f};
inline constexpr NarrowFloat kF8E5M2 = {5, 2, 0x7b, 0x7e};
inline constexpr NarrowFloat kF6E2M3 = {2, 3, 0x1f, 0};
inline constexpr NarrowFloat kF6E3M2 = {3, 2, 0x1f, 0};
inline constexpr NarrowFloat kF4E2M1 = {2, 1, 7, 0};

// Returns the format of a float of at most 8 bits with a sign, or NULL.
constexpr const NarrowFloat* narrow_float(bp_dtype dtype) {
  switch (dtype) {
    case BP_F8E4M3FN:
      return &kF8E4M3FN;
    case BP_F8E5M2:
      return &kF8E5M2;
    case BP_F6E2M3:
      return &kF6E2M3;
    case BP_F6E3M2:
      return &kF6E3M2;
    case BP_F4E2M1:
      return &kF4E2M1;
    default:
      return nullptr;
  }
}

// Returns the bits of the number that is nearest to `value`, ties to even, as `quantize` rounds:
// what lies beyond the largest number becomes that number, infinity too.
inline uint32_t narrow_float_bits(const NarrowFloat& format, double value) {
  if (std::isnan(value)) return format.nan_code;
  const int sign_bit = format.exponent_bits + format.fraction_bits;
  const uint32_t sign = std::signbit(value) ? 1u << sign_bit : 0u;
  const double magnitude = std::fabs(value);
  const int least = 1 - format.bias();  // The exponent of the smallest normal number.
  if (magnitude >= std::ldexp(1.0, 1 << format.exponent_bits)) return sign | format.largest_code;
  const int exponent = magnitude == 0 ? least : std::max(std::ilogb(magnitude), least);
  const auto units =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent)));
  const uint32_t bits = (static_cast<uint32_t>(exponent - least) << format.fraction_bits) + units;
  return sign | std::min(bits, format.largest_code);
}

// Returns the number of a code. One of 8 bits may be infinite or NaN.
inline float narrow_float_value(const NarrowFloat& format, uint32_t code) {
  const int sign_bit = format.exponent_bits + format.fraction_bits;
  const float sign = (code >> sign_bit & 1) != 0 ? -1.0F : 1.0F;
  const uint32_t magnitude = code & ((1u << sign_bit) - 1);
  if (magnitude > format.largest_code) {
    const bool is_infinite = magnitude == format.largest_code + 1 && magnitude != format.nan_code;
    return is_infinite ? sign * INFINITY : NAN;
  }
  const auto biased = static_cast<int>(magnitude >> format.fraction_bits);
  const uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
  const uint32_t units = fraction + (biased == 0 ? 0 : 1u << format.fraction_bits);
  const int exponent = std::max(biased, 1) - format.bias() - format.fraction_bits;
  return sign * std::ldexp(static_cast<float>(units), exponent);
}

// Returns the bits of the f8e8m0fnu that is nearest to `value`, of two the even ones. It has no
// sign and no zero: all that is below its smallest number becomes that number.
inline uint32_t f8e8m0fnu_bits(double value) {
  if (std::isnan(value)) return 255;
  if (value <= 0x1p-127) return 0;
  if (value >= 0x1p127) return 254;
  const int exponent = std::ilogb(value);
  const double digits = std::ldexp(value, -exponent);  // It is at least 1 and below 2.
  const auto bits = static_cast<uint32_t>(exponent + 127);
  return digits > 1.5 || (digits == 1.5 && bits % 2 != 0) ? bits + 1 : bits;
}

}  // namespace bp::tensors
