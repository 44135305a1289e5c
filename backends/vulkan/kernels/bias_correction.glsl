// The bias correction of Adam, 1 - beta^step, in integers of 64 bits: a fraction f stands for
// f / 2^64. Host and shader get the same bits, on every device, and need no f64.
//
// The power is made by repeated squaring. Each product is rounded down, by less than 2^-64. The error
// of the power is below step * beta^step * 2^-62.
//
// This file is GLSL and C++ (bias_correction.hpp), and bias_correction_test.cpp tests it.

// Returns the product of two fractions.
uint64_t multiply_fractions(uint64_t a, uint64_t b) {
  const uint64_t low_a = a & 0xfffffffful, high_a = a >> 32, low_b = b & 0xfffffffful;
  const uint64_t high_b = b >> 32;
  const uint64_t middle = high_a * low_b + ((low_a * low_b) >> 32);
  return high_a * high_b + (middle >> 32) + ((low_a * high_b + (middle & 0xfffffffful)) >> 32);
}

// Returns fraction^exponent, where the exponent is not 0.
uint64_t power_of_fraction(uint64_t fraction, uint64_t exponent) {
  uint64_t power = 0ul, square = fraction;
  bool is_one = true;  // The power is 1, which is no fraction.
  for (uint64_t rest = exponent; rest != 0ul; rest >>= 1) {
    if ((rest & 1ul) != 0ul) {
      power = is_one ? square : multiply_fractions(power, square);
      is_one = false;
    }
    square = multiply_fractions(square, square);
  }
  return power;
}

// Returns the f32 nearest to a fraction, ties to even, where 0 stands for 1.
float f32_of_fraction(uint64_t fraction) {
  if (fraction == 0ul) return 1.0f;
  const uint high = uint(fraction >> 32);
  const int zeros = high != 0u ? 31 - findMSB(high) : 63 - findMSB(uint(fraction));
  const uint64_t digits = fraction << uint64_t(zeros);  // The first bit is set.
  const uint kept = uint(digits >> 40);
  const uint64_t rest = digits & 0xfffffffffful, half_way = 0x8000000000ul;
  const bool is_up = rest > half_way || (rest == half_way && (kept & 1u) != 0u);
  // The first bit of the significand adds 1 to the exponent, and so does a carry.
  const uint base = uint(125 - zeros) << 23;
  return uintBitsToFloat(base + kept + (is_up ? 1u : 0u));
}

// Returns 1 - beta^step. Steps count from 1: a step that is not positive gives 0, as beta^0 does.
float correction_of(uint64_t fraction, uint64_t step) {
  if (step == 0ul || (step >> 63) != 0ul) return 0.0f;
  // A power of 0 leaves 2^64, which overflows to 0.
  return f32_of_fraction(0ul - power_of_fraction(fraction, step));
}
