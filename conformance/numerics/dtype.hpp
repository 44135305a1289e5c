// What the suite knows about dtypes: formats, rounding, and elements in memory.
//
// The registry and the backends convert numbers as well, by code of their own. This one is written
// a second time on purpose: an oracle must not share a mistake with what it judges.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/base.h"
#include "conformance/numerics/double_double.hpp"

namespace bp::conformance {

// A binary floating-point format. p is the number of significand bits with the hidden one.
struct FloatFormat {
  int precision;
  int min_exponent;  // Of the smallest normal number, 2^min_exponent.
  int max_exponent;  // Of the largest finite one.

  double unit_roundoff() const;
  double smallest_normal() const;
  double smallest_subnormal() const;
  double largest() const;
};

// NULL if `dtype` is not a floating-point type of the suite: f64, f32, f16, bf16.
const FloatFormat* float_format(bp_dtype dtype);
bool is_float(bp_dtype dtype);

// Bytes of one element: of f64 f32 f16 bf16 i64 i32 i16 i8 u64 u8 bool. Throws
// std::invalid_argument for others.
uint64_t element_size(bp_dtype dtype);

// "f32"; the names stand in case ids.
const char* dtype_text(bp_dtype dtype);

// acc(x) of the op specification: f32 for f16 and bf16, else the dtype itself.
bp_dtype accumulator_of(bp_dtype dtype);

// The nearest value of a floating-point type, ties to even; beyond the largest it is infinity.
double round_to(bp_dtype dtype, DoubleDouble x);

// The spacing of the values of `dtype` at |x|, at least the smallest subnormal.
double ulp(bp_dtype dtype, double x);

// The next value of `dtype` after `x` in the direction of `toward`.
double next_after(bp_dtype dtype, double x, double toward);

// One element in memory. Stores round to the dtype, or wrap to its width; bool is 0 or 1.
DoubleDouble load_element(bp_dtype dtype, const std::byte* address);
void store_element(bp_dtype dtype, DoubleDouble value, std::byte* address);

// The bits of one element, for messages.
uint64_t element_bits_at(bp_dtype dtype, const std::byte* address);

}  // namespace bp::conformance
