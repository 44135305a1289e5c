// The remainder of a / b with the sign of a, which is fmod() in C. The result is exact. The
// significand of a is divided by that of b in integers, some bits at a time, so subnormal numbers
// are right on every device.
#if defined(COMPUTE_F32)
// Returns significand * 2^(exponent - 150). The significand is below 2^24, and the result is exact.
float number_of_parts(uint significand, int exponent) {
  if (significand == 0u) return 0.0;
  const int shift = 23 - findMSB(significand);
  const uint normal = significand << shift;
  const int moved = exponent - shift;
  if (moved < 1) return uintBitsToFloat(normal >> (1 - moved));
  return uintBitsToFloat((uint(moved) << 23) | (normal & 0x007fffffu));
}

float remainder_of(float a, float b) {
  const uint size_a = floatBitsToUint(a) & 0x7fffffffu, size_b = floatBitsToUint(b) & 0x7fffffffu;
  if (size_a >= 0x7f800000u || size_b > 0x7f800000u || size_b == 0u) return quiet_nan();
  if (size_a < size_b) return a;
  const Parts32 parts = parts_of_f32(size_a), divisor = parts_of_f32(size_b);
  uint rest = parts.significand % divisor.significand;
  for (int left = parts.exponent - divisor.exponent; left > 0 && rest != 0u; left -= 8) {
    rest = (rest << min(left, 8)) % divisor.significand;
  }
  return with_sign_of(number_of_parts(rest, divisor.exponent), a);
}

#elif defined(COMPUTE_F64)
// Returns significand * 2^(exponent - 1075). The significand is below 2^53, and the result is
// exact.
double number_of_parts(uint64_t significand, int exponent) {
  if (significand == 0ul) return 0.0lf;
  const uint upper = uint(significand >> 32);
  const int shift = 52 - (upper != 0u ? 32 + findMSB(upper) : findMSB(uint(significand)));
  const uint64_t normal = significand << shift;
  const int moved = exponent - shift;
  if (moved < 1) return f64_of_bits(normal >> (1 - moved));
  return f64_of_bits((uint64_t(uint(moved)) << 52) | (normal & 0x000ffffffffffffful));
}

double remainder_of(double a, double b) {
  const uint64_t size_a = bits_of_f64(a) & 0x7ffffffffffffffful;
  const uint64_t size_b = bits_of_f64(b) & 0x7ffffffffffffffful;
  const uint64_t kInfinite = 0x7ff0000000000000ul;
  if (size_a >= kInfinite || size_b > kInfinite || size_b == 0ul) return double(quiet_nan());
  if (size_a < size_b) return a;
  const Parts64 parts = parts_of_f64(size_a), divisor = parts_of_f64(size_b);
  uint64_t rest = parts.significand % divisor.significand;
  for (int left = parts.exponent - divisor.exponent; left > 0 && rest != 0ul; left -= 11) {
    rest = (rest << min(left, 11)) % divisor.significand;
  }
  return with_sign_of(number_of_parts(rest, divisor.exponent), a);
}
#endif
