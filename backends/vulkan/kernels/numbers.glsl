// This file has what differs between f32 and f64, so that most functions are written once for
// VALUE: limits, signs, powers of two, floor, ceil, trunc and round. round_of() rounds ties to
// even. Whole numbers are found by their bits, because a driver's own functions may lose the sign
// of zero.
#if defined(COMPUTE_F32)
const float kExponents = 200.0;  // 2^200 is infinite, and 2^-200 is 0.
const float kLargestPower = 1099511627776.0;  // If |b| is greater, a^b is 0, 1 or infinite.
// hypot() scales vectors outside of these limits by 2^-kLongShift or 2^kShortShift.
const float kLong = 9.2233720368547758e18, kShort = 9.094947017729282e-13;
const int kLongShift = 66, kShortShift = 90;
// If |x| is below it, x^3 is too small to change the last digit of x.
const float kTiny = 1.220703125e-4;
const float kLn2 = 0.693147182;
const float kLog2EUpper = 1.44269502, kLog2ELower = 1.92596303e-08;
const float kLn2Upper = kLn2High, kLn2Lower = kLn2Low;

bool is_zero(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0u; }
float with_sign_of(float x, float sign) {
  const uint bits = floatBitsToUint(x) & 0x7fffffffu;
  return uintBitsToFloat(bits | (floatBitsToUint(sign) & 0x80000000u));
}

// Returns the first 12 bits of x. What is left of x has 12 bits too.
float upper_digits(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u); }

// Returns x * 2^n for n in [-252, 254]. The result is rounded once.
float times_power(float x, int n) {
  const int half_of = n >> 1;
  precise const float first = x * power_of_two(half_of);
  precise const float result = first * power_of_two(n - half_of);
  return result;
}

// Returns exp(r) - 1 for |r| <= ln(2) / 2.
float exp_rest(float r) { return exp_tail(r); }

float trunc_of(float x) {
  const uint bits = floatBitsToUint(x);
  const int exponent = int((bits >> 23) & 255u) - 127;
  if (exponent >= 23) return x;
  if (exponent < 0) return uintBitsToFloat(bits & 0x80000000u);
  return uintBitsToFloat(bits & ~(0x007fffffu >> exponent));
}

float floor_of(float x) {
  const uint bits = floatBitsToUint(x);
  const int exponent = int((bits >> 23) & 255u) - 127;
  if (exponent >= 23 || is_zero(x)) return x;
  const uint sign = bits & 0x80000000u;
  // The result is -1 or 0, and no select chooses it: Mesa's compiler would make -0 of the 0.
  if (exponent < 0) return uintBitsToFloat(sign | (sign >> 31) * 0x3f800000u);
  const uint fraction = 0x007fffffu >> exponent;
  // A carry out of the significand adds 1 to the exponent, as it should.
  return uintBitsToFloat((sign != 0u ? bits + fraction : bits) & ~fraction);
}

float round_of(float x) {
  const uint bits = floatBitsToUint(x), magnitude = bits & 0x7fffffffu;
  const int exponent = int(magnitude >> 23) - 127;
  if (exponent >= 23) return x;
  const uint sign = bits & 0x80000000u;
  if (exponent < 0) return uintBitsToFloat(sign | (magnitude > 0x3f000000u ? 0x3f800000u : 0u));
  const uint fraction = 0x007fffffu >> exponent, last = (bits >> (23 - exponent)) & 1u;
  return uintBitsToFloat((bits + (fraction >> 1) + last) & ~fraction);
}

#elif defined(COMPUTE_F64)
const double kExponents = 1200.0lf;
const double kLargestPower = 1180591620717411303424.0lf;
const double kLong = 6.703903964971299e153lf, kShort = 3.054936363499605e-151lf;
const int kLongShift = 514, kShortShift = 600;
const double kTiny = 3.725290298461914e-9lf;
const double kLn2 = 0.6931471805599453lf;
const double kLog2EUpper = 1.4426950408889634lf, kLog2ELower = 2.0355273740931033e-17lf;
const double kLn2Upper = kLn2High64, kLn2Lower = kLn2Low64;

bool is_zero(double x) { return (bits_of_f64(x) << 1) == 0ul; }
double with_sign_of(double x, double sign) {
  const uint64_t bits = bits_of_f64(x) & 0x7ffffffffffffffful;
  return f64_of_bits(bits | (bits_of_f64(sign) & 0x8000000000000000ul));
}

// Returns x rounded to 26 bits. What is left of x has 26 bits too. |x| is below 2^1000.
double upper_digits(double x) {
  return f64_of_bits((bits_of_f64(x) + 0x04000000ul) & 0xfffffffff8000000ul);
}

// Returns x * 2^n for n in [-2044, 2046]. The result is rounded once.
double times_power(double x, int n) {
  const int half_of = n >> 1;
  precise const double first = x * power_of_two_f64(half_of);
  precise const double result = first * power_of_two_f64(n - half_of);
  return result;
}

// Returns exp(r) - 1 for |r| <= ln(2) / 2.
double exp_rest(double r) { return exp_tail_f64(r, 0.0lf); }

int exponent_of(uint64_t bits) { return int(uint(bits >> 52) & 0x7ffu) - 1023; }

double trunc_of(double x) {
  const uint64_t bits = bits_of_f64(x);
  const int exponent = exponent_of(bits);
  if (exponent >= 52) return x;
  if (exponent < 0) return f64_of_bits(bits & 0x8000000000000000ul);
  return f64_of_bits(bits & ~(0x000ffffffffffffful >> exponent));
}

double floor_of(double x) {
  const uint64_t bits = bits_of_f64(x);
  const int exponent = exponent_of(bits);
  if (exponent >= 52 || is_zero(x)) return x;
  const uint64_t sign = bits & 0x8000000000000000ul;
  // The result is -1 or 0, and no select chooses it: Mesa's compiler would make -0 of the 0.
  if (exponent < 0) return f64_of_bits(sign | (sign >> 63) * 0x3ff0000000000000ul);
  const uint64_t fraction = 0x000ffffffffffffful >> exponent;
  // A carry out of the significand adds 1 to the exponent, as it should.
  return f64_of_bits((sign != 0ul ? bits + fraction : bits) & ~fraction);
}

double round_of(double x) {
  const uint64_t bits = bits_of_f64(x), sign = bits & 0x8000000000000000ul;
  const int exponent = exponent_of(bits);
  if (exponent >= 52) return x;
  if (exponent < 0) {
    const bool is_one = (bits ^ sign) > 0x3fe0000000000000ul;
    return f64_of_bits(sign | (is_one ? 0x3ff0000000000000ul : 0ul));
  }
  const uint64_t fraction = 0x000ffffffffffffful >> exponent;
  const uint64_t last = (bits >> (52 - exponent)) & 1ul;
  return f64_of_bits((bits + (fraction >> 1) + last) & ~fraction);
}
#endif

VALUE ceil_of(VALUE x) { return negative_of(floor_of(negative_of(x))); }
