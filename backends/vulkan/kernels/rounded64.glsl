// Division and square root of f64, rounded to nearest even as in IEEE 754: rounded.glsl in 64 bits.
// Vulkan promises no more digits of a double than of a float, so the approximations are of f32, and
// two steps of Newton's method make them good to a few ulp.
//
// This file is GLSL and C++, and rounded_test.cpp tests it. Its user defines quotient_near(a, b)
// and root_near(x) of f32, and bits_of_f64(x) and f64_of_bits(bits).

// |x| = significand * 2^(exponent - 1075), and the significand has 53 bits.
struct Parts64 {
  uint64_t significand;
  int exponent;
};

// `magnitude` has the bits of a finite |x| that is not 0.
Parts64 parts_of_f64(uint64_t magnitude) {
  Parts64 parts;
  if (magnitude < 0x0010000000000000ul) {
    const uint high = uint(magnitude >> 32);
    const int shift = 52 - (high != 0u ? 32 + findMSB(high) : findMSB(uint(magnitude)));
    parts.significand = magnitude << shift;
    parts.exponent = 1 - shift;
  } else {
    parts.significand = (magnitude & 0x000ffffffffffffful) | 0x0010000000000000ul;
    parts.exponent = int(uint(magnitude >> 52));
  }
  return parts;
}

// Returns the significand as a number in [1, 2).
double fraction_of(uint64_t significand) {
  return f64_of_bits((significand & 0x000ffffffffffffful) | 0x3ff0000000000000ul);
}

int high_half(uint64_t x) { return int(uint(x >> 32)); }

// Returns x with its sign in all higher bits.
uint64_t widened(int x) {
  return uint64_t(uint(x)) | (x < 0 ? 0xffffffff00000000ul : 0ul);
}

// Returns the bits of the f64 nearest to q * 2^(exponent - 1076), where q has 54 bits. If
// `has_rest`, the value is greater than that by less than 1 in q.
uint64_t round_f64(uint64_t q, bool has_rest, int exponent) {
  if (exponent >= 2047) return 0x7ff0000000000000ul;
  const int dropped = exponent >= 1 ? 1 : min(2 - exponent, 55);
  const uint64_t kept = q >> dropped, lost = q & ((1ul << dropped) - 1ul);
  const uint64_t half_way = 1ul << (dropped - 1);
  const bool is_up = lost > half_way || (lost == half_way && (has_rest || (kept & 1ul) != 0ul));
  const uint64_t base = exponent >= 1 ? uint64_t(uint(exponent - 1)) << 52 : 0ul;
  return base + kept + (is_up ? 1ul : 0ul);
}

double divide_f64(double a, double b) {
  const uint64_t kInfinite = 0x7ff0000000000000ul, kSign = 0x8000000000000000ul;
  const uint64_t size_a = bits_of_f64(a) & ~kSign, size_b = bits_of_f64(b) & ~kSign;
  const uint64_t sign = (bits_of_f64(a) ^ bits_of_f64(b)) & kSign;
  if (size_a - 1ul >= kInfinite - 1ul || size_b - 1ul >= kInfinite - 1ul) {  // 0, infinite or NaN.
    const bool is_zero = size_a == 0ul || size_b == kInfinite;
    const bool is_infinite = size_a == kInfinite || size_b == 0ul;
    const bool has_nan = size_a > kInfinite || size_b > kInfinite;
    if (has_nan || (is_zero && is_infinite)) return double(quiet_nan());
    return f64_of_bits(sign | (is_zero ? 0ul : kInfinite));
  }
  const Parts64 parts = parts_of_f64(size_a), divisor = parts_of_f64(size_b);
  uint64_t dividend = parts.significand;
  int exponent = parts.exponent - divisor.exponent + 1023;
  double upper = fraction_of(dividend);
  if (dividend < divisor.significand) {
    dividend <<= 1;
    upper += upper;
    --exponent;
  }
  const double lower = fraction_of(divisor.significand);
  double inverse = double(quotient_near(1.0, float(lower)));
  inverse += inverse * (1.0 - lower * inverse);
  inverse += inverse * (1.0 - lower * inverse);
  uint64_t q = uint64_t(upper * inverse * 9007199254740992.0);
  uint64_t rest = (dividend << 53) - q * divisor.significand;
  // The high halves give the number of steps to 1 in 2^20.
  const float high = float(uint(divisor.significand >> 32));
  const uint64_t steps = widened(int(floor(quotient_near(float(high_half(rest)), high))));
  q += steps;
  rest -= steps * divisor.significand;
  if (high_half(rest) < 0) {
    --q;
    rest += divisor.significand;
  }
  if (rest >= divisor.significand) {
    ++q;
    rest -= divisor.significand;
  }
  return f64_of_bits(sign | round_f64(q, rest != 0ul, exponent));
}

double root_f64(double x) {
  const uint64_t kInfinite = 0x7ff0000000000000ul;
  const uint64_t bits = bits_of_f64(x);
  if (bits - 1ul >= kInfinite - 1ul) {  // 0, infinite, NaN or below 0.
    return (bits << 1) == 0ul || bits == kInfinite ? x : double(quiet_nan());
  }
  const Parts64 parts = parts_of_f64(bits);
  // r is the root of significand * 2^shift, and has 54 bits. The exponent that is left is even.
  const int shift = 55 - (parts.exponent & 1);
  const int exponent = 1076 + (parts.exponent - 1075 - shift) / 2;
  double fraction = fraction_of(parts.significand);
  if (shift == 55) fraction += fraction;
  double inverse = double(quotient_near(1.0, root_near(float(fraction))));
  inverse += inverse * (0.5 - 0.5 * fraction * inverse * inverse);
  inverse += inverse * (0.5 - 0.5 * fraction * inverse * inverse);
  uint64_t r = uint64_t(fraction * inverse * 9007199254740992.0);
  uint64_t rest = (parts.significand << shift) - r * r;
  const float high = float(uint(r >> 31));
  const uint64_t steps = widened(int(floor(quotient_near(float(high_half(rest)), high))));
  rest -= steps * (2ul * r + steps);
  r += steps;
  if (high_half(rest) < 0) {
    --r;
    rest += 2ul * r + 1ul;
  }
  if (rest > 2ul * r) {
    rest -= 2ul * r + 1ul;
    ++r;
  }
  return f64_of_bits((uint64_t(uint(exponent - 1)) << 52) + (r >> 1) + (r & 1ul));
}
