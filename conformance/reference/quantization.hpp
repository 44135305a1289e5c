// Oracles of quantize, dequantize and matmul_scaled, from the definitions of the formats.
#pragma once

#include <cmath>

#include "conformance/numerics/dtype.hpp"
#include "conformance/numerics/narrow_format.hpp"
#include "conformance/reference/array.hpp"

namespace bp::conformance::reference {

// A tensor with what belongs to its blocks. `zero` has no elements if there is none, and the scale
// of all elements is 1 if there is none.
struct Blocked {
  Array<double> x, scale, zero;
  double tensor_scale = 1;

  // Returns the scale of an element. The product of two f32 is exact in f64.
  double scale_of(int64_t element) const {
    return round_to(BP_F32, scale[block_of(element)] * tensor_scale);
  }

  // Returns the number of the block of an element.
  int64_t block_of(int64_t element) const {
    Shape place = coordinates(element, x.shape);
    for (size_t axis = 0; axis < place.size(); ++axis) {
      place[axis] /= x.shape[axis] / scale.shape[axis];
    }
    return flat_index(place, scale.shape);
  }
  double zero_of(int64_t element) const { return zero.data.empty() ? 0 : zero[block_of(element)]; }
};

// Returns the smallest and the largest integer of a dtype.
inline double least_integer(bp_dtype dtype) {
  return is_unsigned(dtype) ? 0 : -std::ldexp(1.0, static_cast<int>(dtype_bits(dtype)) - 1);
}
inline double largest_integer(bp_dtype dtype) {
  const int bits = static_cast<int>(dtype_bits(dtype));
  return std::ldexp(1.0, is_unsigned(dtype) ? bits : bits - 1) - 1;
}

// A quotient of two f32 that is rounded to f64 and then to f32 is the one that is rounded once,
// unless it is subnormal, and then it becomes 0 in every dtype.
inline Array<double> quantize(const Blocked& of, bp_dtype to) {
  Array<double> y(of.x.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const double quotient = round_to(BP_F32, of.x[i] / of.scale_of(i));
    if (narrow_format(to) != nullptr) {
      y[i] = narrow_values(to)[narrow_code(to, quotient)];
      continue;
    }
    const double number = std::isnan(quotient) ? 0 : quotient;
    const double rounded = std::nearbyint(number) + of.zero_of(i);
    y[i] = std::fmin(std::fmax(rounded, least_integer(to)), largest_integer(to));
  }
  return y;
}

// Returns how many scales a number of `steps` scales becomes: its code, which is `steps` + zero
// from low to high, without zero. NaN stays NaN.
inline double limited_code(double steps, double zero, double low, double high) {
  if (std::isnan(steps)) return steps;
  return std::fmin(std::fmax(steps + zero, low), high) - zero;
}

// The product of an integer or a narrow number and an f32 is exact in f64.
inline Array<double> dequantize(const Blocked& of, bp_dtype to) {
  Array<double> y(of.x.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const double difference = of.zero.data.empty() ? of.x[i] : of.x[i] - of.zero_of(i);
    y[i] = round_to(to, round_to(BP_F32, difference * of.scale_of(i)));
  }
  return y;
}

// Returns the numbers that a factor of matmul_scaled stands for, which are not rounded.
inline Array<double> numbers_of(const Blocked& of) {
  Array<double> y(of.x.shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    y[i] = (of.x[i] - of.zero_of(i)) * of.scale_of(i);
  }
  return y;
}

}  // namespace bp::conformance::reference
