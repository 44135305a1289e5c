// The dtypes of the suite: formats, rounding, and elements in memory.
//
// The registry and the backends convert numbers as well, by code of their own. The suite has its
// own code on purpose: an oracle must not share a mistake with the code that it tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/base.h"
#include "conformance/numerics/double_double.hpp"

namespace bp::conformance {

// A binary floating-point format. p is the number of significand bits with the hidden one.
struct FloatFormat {
  int precision;
  int min_exponent;  // The exponent of the smallest normal number, 2^min_exponent.
  int max_exponent;  // The exponent of the largest finite number.

  double unit_roundoff() const;
  double smallest_normal() const;
  double smallest_subnormal() const;
  double largest() const;
};

// Returns the format, or NULL if `dtype` is not a floating-point type of the suite: f64, f32, f16,
// bf16.
const FloatFormat* float_format(bp_dtype dtype);
bool is_float(bp_dtype dtype);

// Returns the bits of one element of f64 f32 f16 bf16 i64 i32 i16 i8 i4 i2 u64 u8 u4 u2 bool, and
// of the formats of narrow_format.hpp. Throws std::invalid_argument for other dtypes.
uint64_t dtype_bits(bp_dtype dtype);

// Returns the bytes of one element. An element that shares its byte with others counts as one byte.
uint64_t element_size(bp_dtype dtype);

// Returns whether the dtype is packed: its elements share bytes.
bool is_packed(bp_dtype dtype);

bool is_unsigned(bp_dtype dtype);

// Returns whether elements are read by their bits: those of a narrow format, and packed ones.
constexpr bool is_coded(bp_dtype dtype) {
  return dtype == BP_I4 || dtype == BP_U4 || (dtype >= BP_F8E4M3FN && dtype <= BP_U2);
}

// Returns the name of the dtype, such as "f32". The names are part of case ids.
const char* dtype_text(bp_dtype dtype);

// Returns acc(x) of the op specification: f32 for f16 and bf16, else the dtype itself.
bp_dtype accumulator_of(bp_dtype dtype);

// Returns the nearest value of a floating-point type, ties to even. Beyond the largest value it is
// infinity.
double round_to(bp_dtype dtype, DoubleDouble x);

// Returns the spacing of the values of `dtype` at |x|, at least the smallest subnormal.
double ulp(bp_dtype dtype, double x);

// Returns the next value of `dtype` after `x` in the direction of `toward`.
double next_after(bp_dtype dtype, double x, double toward);

// Load and store one element in memory. A store rounds to the dtype, or wraps to its width; bool is
// 0 or 1. A packed element lies in the low bits of its byte, and a store keeps the others.
DoubleDouble load_element(bp_dtype dtype, const std::byte* address);
void store_element(bp_dtype dtype, DoubleDouble value, std::byte* address);

// Load and store the element that begins at `bit`, counted from the low bit of the first byte.
DoubleDouble load_at_bit(bp_dtype dtype, const std::byte* bytes, uint64_t bit);
void store_at_bit(bp_dtype dtype, DoubleDouble value, std::byte* bytes, uint64_t bit);
uint64_t element_bits_at_bit(bp_dtype dtype, const std::byte* bytes, uint64_t bit);

// Returns the bits of one element, for messages.
uint64_t element_bits_at(bp_dtype dtype, const std::byte* address);

}  // namespace bp::conformance
