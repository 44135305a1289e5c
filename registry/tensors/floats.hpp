// Converts floats of 16 bits to numbers and back, because C++20 compilers need not have such types.
//
//          sign  exponent  fraction
//   f16      1       5        10     IEEE 754 binary16
//   bf16     1       8         7     the upper half of an f32
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

}  // namespace bp::tensors
