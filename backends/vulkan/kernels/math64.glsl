// Functions of f64, exact to the last places, which GLSL lacks. `precise` prevents fusing and
// reordering.

bool is_nan(double x) {
  return (packUint2x32(unpackDouble2x32(x)) & 0x7ffffffffffffffful) > 0x7ff0000000000000ul;
}

// Returns the larger number, or NaN if one of them is NaN.
double larger_of(double a, double b) { return is_nan(b) ? b : (a < b ? b : a); }

// ln(2) is split in two parts. The product of the first part with an exponent is exact.
const double kLn2High64 = 6.93147180369123816490e-01lf, kLn2Low64 = 1.90821492927058770002e-10lf;

// Returns 2^n for n in [-1022, 1023].
double power_of_two_f64(int n) { return packDouble2x32(uvec2(0u, uint(n + 1023) << 20)); }

// Returns n in x = n * ln(2) + r.
double nearest_exponent_f64(double x) { return roundEven(x * 1.44269504088896338700lf); }

// Returns exp(r) - 1 for the r of nearest_exponent_f64(), by its series. r^14 / 14! is below half
// an ulp.
double exp_tail_f64(double x, double n) {
  precise const double r = (x - n * kLn2High64) - n * kLn2Low64;
  precise double p = 1.6059043836821613e-10lf;
  p = p * r + 2.0876756987868099e-09lf;
  p = p * r + 2.5052108385441720e-08lf;
  p = p * r + 2.7557319223985893e-07lf;
  p = p * r + 2.7557319223985888e-06lf;
  p = p * r + 2.4801587301587302e-05lf;
  p = p * r + 1.9841269841269841e-04lf;
  p = p * r + 1.3888888888888889e-03lf;
  p = p * r + 8.3333333333333332e-03lf;
  p = p * r + 4.1666666666666664e-02lf;
  p = p * r + 1.6666666666666666e-01lf;
  p = p * r + 0.5lf;
  precise const double tail = r + r * r * p;
  return tail;
}

double exp_f64(double x) {
  const double capped = min(max(x, -746.0lf), 710.0lf);
  const double n = nearest_exponent_f64(capped);
  precise const double significand = 1.0lf + exp_tail_f64(capped, n);
  // 2^n is two factors, because the result can be subnormal or infinite.
  const int whole = int(n), half_of = whole >> 1;
  precise const double result =
      significand * power_of_two_f64(half_of) * power_of_two_f64(whole - half_of);
  return is_nan(x) ? x : result;
}

// Let x = 2^k * m, f = m - 1 and s = f / (2 + f), as in log_f32(). The polynomial is that of
// fdlibm.
double log_f64(double x) {
  uvec2 bits = unpackDouble2x32(x);
  int k = 0;
  if (bits.y < 0x00100000u) {  // x is subnormal.
    bits = unpackDouble2x32(x * 18014398509481984.0lf);
    k = -54;
  }
  bits.y += 0x3ff00000u - 0x3fe6a09eu;
  k += int(bits.y >> 20) - 1023;
  bits.y = (bits.y & 0x000fffffu) + 0x3fe6a09eu;
  precise const double f = packDouble2x32(bits) - 1.0lf;
  precise const double s = f / (2.0lf + f), z = s * s, half_square = 0.5lf * f * f;
  precise double r = 1.479819860511658591e-01lf;
  r = r * z + 1.531383769920937332e-01lf;
  r = r * z + 1.818357216161805012e-01lf;
  r = r * z + 2.222219843214978396e-01lf;
  r = r * z + 2.857142874366239149e-01lf;
  r = r * z + 3.999999999940941908e-01lf;
  r = r * z + 6.666666666666735130e-01lf;
  precise const double whole = double(k), low = s * (half_square + r * z) + whole * kLn2Low64;
  precise const double result = ((low - half_square) + f) + whole * kLn2High64;
  if (x == 0.0lf) return -double(infinity());
  if (is_nan(x) || x == double(infinity())) return x;
  return x < 0.0lf ? double(quiet_nan()) : result;
}

// |tanh(x)| is p / (p + 2) with p = exp(2 |x|) - 1. Beyond 20 it is 1.
double tanh_f64(double x) {
  const double twice = 2.0lf * min(abs(x), 20.0lf), n = nearest_exponent_f64(twice);
  const double scale = power_of_two_f64(int(n));
  precise const double p = scale * exp_tail_f64(twice, n) + (scale - 1.0lf);
  const double magnitude = p / (p + 2.0lf);
  uvec2 bits = unpackDouble2x32(magnitude);
  bits.y |= unpackDouble2x32(x).y & 0x80000000u;
  return is_nan(x) ? x : packDouble2x32(bits);
}
