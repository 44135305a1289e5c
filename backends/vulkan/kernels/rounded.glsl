// Division and square root of f32, rounded to nearest even as in IEEE 754. Vulkan allows errors of
// 2.5 ulp and more. Subnormal numbers are operands and results on every device.
//
// An approximate result is corrected with its remainder. The remainder is exact in 32 bits,
// because it is known to be small: the error of the approximation is far below 2^-19.
//
// This file is GLSL and C++, and rounded_test.cpp tests it. Its user defines quotient_near(a, b)
// and root_near(x), the approximations.

// |x| = significand * 2^(exponent - 150), and the significand has 24 bits.
struct Parts32 {
  uint significand;
  int exponent;
};

// `magnitude` has the bits of a finite |x| that is not 0.
Parts32 parts_of_f32(uint magnitude) {
  Parts32 parts;
  if (magnitude < 0x00800000u) {
    const int shift = 23 - findMSB(magnitude);
    parts.significand = magnitude << shift;
    parts.exponent = 1 - shift;
  } else {
    parts.significand = (magnitude & 0x007fffffu) | 0x00800000u;
    parts.exponent = int(magnitude >> 23);
  }
  return parts;
}

// Returns the bits of the f32 nearest to q * 2^(exponent - 151), where q has 25 bits. If `has_rest`,
// the value is greater than that by less than 1 in q.
uint round_f32(uint q, bool has_rest, int exponent) {
  if (exponent >= 255) return 0x7f800000u;
  const int dropped = exponent >= 1 ? 1 : min(2 - exponent, 26);
  const uint kept = q >> dropped, lost = q & ((1u << dropped) - 1u);
  const uint half_way = 1u << (dropped - 1);
  const bool is_up = lost > half_way || (lost == half_way && (has_rest || (kept & 1u) != 0u));
  // The first bit of a normal significand adds 1 to the exponent, and so does a carry.
  const uint base = exponent >= 1 ? uint(exponent - 1) << 23 : 0u;
  return base + kept + (is_up ? 1u : 0u);
}

float divide_f32(float a, float b) {
  const uint size_a = floatBitsToUint(a) & 0x7fffffffu, size_b = floatBitsToUint(b) & 0x7fffffffu;
  const uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
  if (size_a - 1u >= 0x7f7fffffu || size_b - 1u >= 0x7f7fffffu) {  // 0, infinite or NaN.
    const bool is_zero = size_a == 0u || size_b == 0x7f800000u;
    const bool is_infinite = size_a == 0x7f800000u || size_b == 0u;
    const bool has_nan = size_a > 0x7f800000u || size_b > 0x7f800000u;
    if (has_nan || (is_zero && is_infinite)) return quiet_nan();
    return uintBitsToFloat(sign | (is_zero ? 0u : 0x7f800000u));
  }
  const Parts32 parts = parts_of_f32(size_a), divisor = parts_of_f32(size_b);
  // The quotient of the significands is in [1, 2).
  uint dividend = parts.significand;
  int exponent = parts.exponent - divisor.exponent + 127;
  if (dividend < divisor.significand) {
    dividend <<= 1;
    --exponent;
  }
  const float lower = float(divisor.significand);
  uint q = uint(quotient_near(float(dividend), lower) * 16777216.0);
  uint rest = (dividend << 24) - q * divisor.significand;
  const uint steps = uint(int(floor(quotient_near(float(int(rest)), lower))));
  q += steps;
  rest -= steps * divisor.significand;
  if (int(rest) < 0) {
    --q;
    rest += divisor.significand;
  }
  if (int(rest) >= int(divisor.significand)) {
    ++q;
    rest -= divisor.significand;
  }
  return uintBitsToFloat(sign | round_f32(q, rest != 0u, exponent));
}

float root_f32(float x) {
  const uint bits = floatBitsToUint(x);
  if (bits - 1u >= 0x7f7fffffu) {  // 0, infinite, NaN or below 0.
    return (bits & 0x7fffffffu) == 0u || bits == 0x7f800000u ? x : quiet_nan();
  }
  const Parts32 parts = parts_of_f32(bits);
  // r is the root of significand * 2^shift, and has 25 bits. The exponent that is left is even.
  const int shift = 26 - (parts.exponent & 1);
  const int exponent = 151 + (parts.exponent - 150 - shift) / 2;
  uint r = uint(root_near(float(parts.significand) * float(1u << shift)));
  uint rest = (parts.significand << shift) - r * r;
  const uint steps = uint(int(floor(quotient_near(float(int(rest)), float(2u * r)))));
  rest -= steps * (2u * r + steps);
  r += steps;
  if (int(rest) < 0) {
    --r;
    rest += 2u * r + 1u;
  }
  if (int(rest) > int(2u * r)) {
    rest -= 2u * r + 1u;
    ++r;
  }
  // The root lies half-way between two f32 only if r * r is odd, but then it would not be exact.
  return uintBitsToFloat((uint(exponent - 1) << 23) + (r >> 1) + (r & 1u));
}
