// sin, cos and tan. The argument is x = quarter * pi / 2 + angle with |angle| <= pi / 4. For every
// x beyond pi / 4, the digits of 2 / pi that matter are multiplied by the significand as integers
// (the method of Payne and Hanek), so large arguments cost the same, and no digit is lost. The
// polynomials interpolate (sin(x) / x - 1) / x^2 and (cos(x) - 1 + x^2 / 2) / x^4 as functions of z
// = x^2 at Chebyshev nodes.
//
// The largest errors found, in ulp of f32 and of f64, against MPFR at 1,000,000 and 300,000
// arguments: sin 0.79 and 0.80, cos 0.80 and 0.77, tan 2.22 and 2.01. At every f32 near a zero of
// sin or cos, the error is below 0.51.
struct Turn {
  Pair angle;
  int quarter;
};

#if defined(COMPUTE_F32)
// The digits of 2 / pi in binary, with 32 zeros ahead of the point.
const uint kTwoOverPi[8] = {0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                            0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};

// Returns 32 digits of 2 / pi, of which the first counts 2^(31 - first).
uint digits_of_two_over_pi(int first) {
  const int word = first >> 5;
  const uint64_t both = uint64_t(kTwoOverPi[word]) << 32 | uint64_t(kTwoOverPi[word + 1]);
  return uint(both >> (32 - (first & 31)));
}

// Returns x * 2 / pi modulo 4, times 2^62. x is finite and at least 1/2.
uint64_t quarters_of(float x) {
  const Parts32 parts = parts_of_f32(floatBitsToUint(x));
  const uint64_t significand = uint64_t(parts.significand);
  const int first = parts.exponent - 120;
  const uint64_t low = significand * uint64_t(digits_of_two_over_pi(first + 64));
  const uint64_t middle =
      significand * uint64_t(digits_of_two_over_pi(first + 32)) + (low >> 32);
  return ((significand * uint64_t(digits_of_two_over_pi(first))) << 32) + middle;
}

// Returns the angle of fraction * 2^-64 quarters. Its first 32 digits are multiplied by pi / 2.
Pair angle_of(uint64_t fraction) {
  const uint upper = uint(fraction >> 32);
  const int zeros = upper != 0u ? 31 - findMSB(upper) : 63 - findMSB(uint(fraction));
  const uint64_t product = ((fraction << zeros) >> 32) * 0xc90fdaa2ul;
  const float unit = power_of_two(-23 - zeros);
  const float low = float(uint(product >> 16) & 0x00ffffffu) * 5.9604644775390625e-8;
  return Pair(float(uint(product >> 40)) * unit, low * unit);
}

Turn turn_of(float x) {
  const float size = magnitude_of(x);
  if (!(size > 0.785398185)) return Turn(Pair(x, VALUE(0)), 0);
  const uint64_t quarters = quarters_of(size) + 0x2000000000000000ul;
  // The fraction is in [-1/2, 1/2) quarters.
  const uint64_t fraction = (quarters << 2) - 0x8000000000000000ul;
  const int quarter = int(uint(quarters >> 62));
  const bool is_below_0 = (fraction >> 63) != 0ul;
  const Pair angle = angle_of(is_below_0 ? ~fraction + 1ul : fraction);
  const bool is_negative = is_below_0 != has_sign(x);
  const VALUE sign = is_negative ? VALUE(-1) : VALUE(1);
  return Turn(Pair(sign * angle.high, sign * angle.low), has_sign(x) ? 4 - quarter : quarter);
}

float sin_polynomial(float z) {
  precise float p = 2.72499e-06;
  p = p * z - 0.00019840087;
  p = p * z + 0.008333332;
  p = p * z - 0.16666667;
  return p;
}

float cos_polynomial(float z) {
  precise float p = 2.4547922e-05;
  p = p * z - 0.0013888302;
  p = p * z + 0.041666664;
  return p;
}

#elif defined(COMPUTE_F64)
// The digits of 2 / pi in binary, with 64 zeros ahead of the point.
const uint64_t kTwoOverPi[20] = {
    0x0000000000000000ul, 0xa2f9836e4e441529ul, 0xfc2757d1f534ddc0ul,
    0xdb6295993c439041ul, 0xfe5163abdebbc561ul, 0xb7246e3a424dd2e0ul,
    0x06492eea09d1921cul, 0xfe1deb1cb129a73eul, 0xe88235f52ebb4484ul,
    0xe99c7026b45f7e41ul, 0x3991d639835339f4ul, 0x9c845f8bbdf9283bul,
    0x1ff897ffde05980ful, 0xef2f118b5a0a6d1ful, 0x6d367ecf27cb09b7ul,
    0x4f463f669e5fea2dul, 0x7527bac7ebe5f17bul, 0x3d0739f78a5292eaul,
    0x6bfb5fb11f8d5d08ul, 0x56033046fc7b6babul};

// Returns 64 digits of 2 / pi, of which the first counts 2^(63 - first).
uint64_t digits_of_two_over_pi(int first) {
  const int word = first >> 6, shift = first & 63;
  return kTwoOverPi[word] << shift | (kTwoOverPi[word + 1] >> 1) >> (63 - shift);
}

// Returns the upper 64 bits of a * b.
uint64_t upper_product(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xfffffffful, a_high = a >> 32;
  const uint64_t b_low = b & 0xfffffffful, b_high = b >> 32;
  const uint64_t first = a_high * b_low + ((a_low * b_low) >> 32);
  const uint64_t second = a_low * b_high + (first & 0xfffffffful);
  return a_high * b_high + (first >> 32) + (second >> 32);
}

// x * 2 / pi modulo 4, times 2^126.
struct Quarters {
  uint64_t high, low;
};

// x is finite and at least 1/2.
Quarters quarters_of(double x) {
  const Parts64 parts = parts_of_f64(bits_of_f64(x));
  const uint64_t significand = parts.significand;
  const int first = parts.exponent - 1013;
  const uint64_t digits = digits_of_two_over_pi(first + 64);
  const uint64_t carried = upper_product(significand, digits_of_two_over_pi(first + 128));
  const uint64_t low = significand * digits + carried;
  const uint64_t high = significand * digits_of_two_over_pi(first) +
                        upper_product(significand, digits) + (low < carried ? 1ul : 0ul);
  return Quarters(high, low);
}

// Returns the angle of fraction * 2^-128 quarters. Its first 64 digits are multiplied by pi / 2.
Pair angle_of(Quarters fraction) {
  const uint upper = uint(fraction.high >> 32);
  const int zeros = upper != 0u ? 31 - findMSB(upper) : 63 - findMSB(uint(fraction.high));
  const uint64_t digits = fraction.high << zeros | (fraction.low >> 1) >> (63 - zeros);
  const uint64_t product = upper_product(digits, 0xc90fdaa22168c234ul);
  const double unit = power_of_two_f64(-52 - zeros);
  const double high = double(uint(product >> 43)) * 4294967296.0lf + double(uint(product >> 11));
  const double low = double(uint(product) & 0x7ffu) * 0.00048828125lf;
  return Pair(high * unit, low * unit);
}

Turn turn_of(double x) {
  const double size = magnitude_of(x);
  if (!(size > 0.7853981633974483lf)) return Turn(Pair(x, VALUE(0)), 0);
  const Quarters product = quarters_of(size);
  const uint64_t high = product.high + 0x2000000000000000ul;
  // The fraction is in [-1/2, 1/2) quarters.
  Quarters fraction = Quarters((high << 2 | product.low >> 62) - 0x8000000000000000ul,
                               product.low << 2);
  const bool is_below_0 = (fraction.high >> 63) != 0ul;
  if (is_below_0) fraction = Quarters(~fraction.high, ~fraction.low);
  const Pair angle = angle_of(fraction);
  const int quarter = int(uint(high >> 62));
  const bool is_negative = is_below_0 != has_sign(x);
  const VALUE sign = is_negative ? VALUE(-1) : VALUE(1);
  return Turn(Pair(sign * angle.high, sign * angle.low), has_sign(x) ? 4 - quarter : quarter);
}

double sin_polynomial(double z) {
  precise double p = -7.586692261996607e-13lf;
  p = p * z + 1.6058531536609874e-10lf;
  p = p * z - 2.505210623192784e-08lf;
  p = p * z + 2.7557319219337672e-06lf;
  p = p * z - 0.00019841269841265063lf;
  p = p * z + 0.008333333333333331lf;
  p = p * z - 0.16666666666666666lf;
  return p;
}

double cos_polynomial(double z) {
  precise double p = -1.1382625349305145e-11lf;
  p = p * z + 2.0876146170181556e-09lf;
  p = p * z - 2.75573172712585e-07lf;
  p = p * z + 2.4801587298764778e-05lf;
  p = p * z - 0.0013888888888887398lf;
  p = p * z + 0.041666666666666664lf;
  return p;
}
#endif

VALUE sin_of_angle(Pair x) {
  precise const VALUE z = x.high * x.high, slope = VALUE(1) - VALUE(0.5) * z;
  precise const VALUE result = x.high + (x.high * (z * sin_polynomial(z)) + x.low * slope);
  return is_zero(x.high) ? x.high : result;
}

VALUE cos_of_angle(Pair x) {
  precise const VALUE z = x.high * x.high, half_of = VALUE(0.5) * z;
  precise const VALUE high = VALUE(1) - half_of;
  precise const VALUE low = ((VALUE(1) - high) - half_of) - x.high * x.low;
  precise const VALUE result = high + (z * z * cos_polynomial(z) + low);
  return result;
}

// Returns sin(x) for shift 0, and cos(x) for shift 1, which is sin(x + pi / 2).
VALUE sin_of_turn(VALUE x, int shift) {
  if (!is_finite(x)) return is_nan(x) ? x : VALUE(quiet_nan());
  const Turn turn = turn_of(x);
  const int quarter = turn.quarter + shift;
  const bool is_odd = (quarter & 1) != 0;
  const VALUE result = is_odd ? cos_of_angle(turn.angle) : sin_of_angle(turn.angle);
  return (quarter & 2) != 0 ? -result : result;
}

VALUE sin_of(VALUE x) { return sin_of_turn(x, 0); }
VALUE cos_of(VALUE x) { return sin_of_turn(x, 1); }

VALUE tan_of(VALUE x) {
  if (!is_finite(x)) return is_nan(x) ? x : VALUE(quiet_nan());
  const Turn turn = turn_of(x);
  const VALUE sine = sin_of_angle(turn.angle), cosine = cos_of_angle(turn.angle);
  return (turn.quarter & 1) != 0 ? -quotient_of(cosine, sine) : quotient_of(sine, cosine);
}
