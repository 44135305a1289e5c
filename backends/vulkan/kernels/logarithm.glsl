// log1p, log2 and log10, and the logarithm with twice the digits of VALUE, which other functions
// need. Let x = 2^k * m with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1) and z = s^2. Then
// log(m) = 2 s + 2 s z / 3 + 2 s z^2 * p(z), where the polynomial p interpolates the rest of the
// series at Chebyshev nodes. Only p(z) is computed with the digits of VALUE.
//
// The largest errors found, in ulp of f32 and of f64, against MPFR at 1,000,000 and 300,000
// arguments: log1p 0.66 and 0.64, log2 0.501 and 0.501, log10 0.501 and 0.501.

// The number significand * 2^exponent, with a significand in [sqrt(1/2), sqrt(2)).
struct Scaled {
  VALUE significand;
  int exponent;
};

#if defined(COMPUTE_F32)
const Pair kThird = Pair(0.333333343, -9.93410776e-09);
const Pair kLog10E = Pair(0.434294492, -1.010305e-08);
const float kLog10Of2Upper = 0.301025390625, kLog10Of2Lower = 4.60503907e-06;

float log_polynomial(float z) {
  precise float p = 0.09560389;
  p = p * z + 0.111023754;
  p = p * z + 0.14285766;
  p = p * z + 0.2;
  return p;
}

// x is finite and greater than 0.
Scaled split(float x) {
  const Parts32 parts = parts_of_f32(floatBitsToUint(x));
  const uint fraction = parts.significand & 0x007fffffu;
  const bool is_large = fraction >= 0x003504f3u;  // The significand is sqrt(2) or more.
  const float significand = uintBitsToFloat(fraction | (is_large ? 0x3f000000u : 0x3f800000u));
  return Scaled(significand, parts.exponent - (is_large ? 126 : 127));
}

#elif defined(COMPUTE_F64)
const Pair kThird = Pair(0.3333333333333333lf, 1.850371707708594e-17lf);
const Pair kLog10E = Pair(0.4342944819032518lf, 1.098319650216765e-17lf);
const double kLog10Of2Upper = 0.3010299955494702lf, kLog10Of2Lower = 1.1451100898021838e-10lf;

double log_polynomial(double z) {
  precise double p = 0.05861801832832608lf;
  p = p * z + 0.05853097842580613lf;
  p = p * z + 0.06667403106154503lf;
  p = p * z + 0.07692297467296616lf;
  p = p * z + 0.09090909167827108lf;
  p = p * z + 0.11111111110827367lf;
  p = p * z + 0.14285714285714685lf;
  p = p * z + 0.2lf;
  return p;
}

// x is finite and greater than 0.
Scaled split(double x) {
  const Parts64 parts = parts_of_f64(bits_of_f64(x));
  const uint64_t fraction = parts.significand & 0x000ffffffffffffful;
  const bool is_large = fraction >= 0x0006a09e667f3bcdul;  // The significand is sqrt(2) or more.
  const uint64_t base = is_large ? 0x3fe0000000000000ul : 0x3ff0000000000000ul;
  return Scaled(f64_of_bits(fraction | base), parts.exponent - (is_large ? 1022 : 1023));
}
#endif

// Returns log(m) for m in [sqrt(1/2), sqrt(2)).
Pair log_of_significand(VALUE m) {
  precise const VALUE f = m - VALUE(1);
  const Pair s = quotient_of(Pair(f, VALUE(0)), ordered_sum(VALUE(2), f));
  const Pair z = product_of(s, s);
  precise const VALUE rest = z.high * log_polynomial(z.high) + kThird.low;
  const Pair tail = product_of(s, product_of(z, ordered_sum(kThird.high, rest)));
  const Pair half_of = sum_of(s, tail);
  return Pair(VALUE(2) * half_of.high, VALUE(2) * half_of.low);
}

// Returns log(x) for a finite x greater than 0. The product of k and the upper part is exact, and
// so it is in log10_pair().
Pair log_pair(VALUE x) {
  const Scaled parts = split(x);
  const VALUE k = VALUE(parts.exponent);
  precise const VALUE upper = k * kLn2Upper, lower = k * kLn2Lower;
  return sum_of(ordered_sum(upper, lower), log_of_significand(parts.significand));
}

Pair log2_pair(VALUE x) {
  const Scaled parts = split(x);
  const Pair rest =
      product_of(log_of_significand(parts.significand), Pair(kLog2EUpper, kLog2ELower));
  return sum_of(Pair(VALUE(parts.exponent), VALUE(0)), rest);
}

Pair log10_pair(VALUE x) {
  const Scaled parts = split(x);
  const VALUE k = VALUE(parts.exponent);
  precise const VALUE upper = k * kLog10Of2Upper, lower = k * kLog10Of2Lower;
  const Pair rest = product_of(log_of_significand(parts.significand), kLog10E);
  return sum_of(ordered_sum(upper, lower), rest);
}

// Returns the logarithm of a pair greater than 0. The log(1 + c) of a small c is c - c^2 / 2.
Pair log_of_pair(Pair sum) {
  const VALUE c = quotient_of(sum.low, sum.high);
  precise const VALUE rest = c - VALUE(0.5) * c * c;
  return sum_of(log_pair(sum.high), Pair(rest, VALUE(0)));
}

// Returns whether the logarithm of x is a finite number.
bool has_log(VALUE x) {
  return !is_nan(x) && !is_zero(x) && !has_sign(x) && x != VALUE(infinity());
}

// Returns the logarithm of an x for which has_log() is false.
VALUE limit_of_log(VALUE x) {
  if (is_zero(x)) return -VALUE(infinity());
  return is_nan(x) || !has_sign(x) ? x : VALUE(quiet_nan());
}

VALUE log2_of(VALUE x) { return has_log(x) ? log2_pair(x).high : limit_of_log(x); }
VALUE log10_of(VALUE x) { return has_log(x) ? log10_pair(x).high : limit_of_log(x); }

VALUE log1p_of(VALUE x) {
  precise const VALUE sum = x + VALUE(1);
  if (!has_log(sum)) return limit_of_log(sum);
  precise const VALUE near_zero = x - VALUE(0.5) * x * x;
  if (sum == VALUE(1)) return near_zero;
  return log_of_pair(exact_sum(x, VALUE(1))).high;
}
