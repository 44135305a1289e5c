// asin, acos, atan and atan2. The polynomials interpolate (asin(x) / x - 1) / x^2 for |x| <= 1/2
// and (atan(x) / x - 1) / x^2 for |x| <= sqrt(2) - 1, as functions of z = x^2, at Chebyshev nodes.
//
// The largest errors found, in ulp of f32 and of f64, against MPFR at 1,000,000 and 300,000
// arguments: asin 0.63 and 0.62, acos 0.62 and 0.61, atan 1.82 and 1.67, atan2 2.26 and 2.11.
#if defined(COMPUTE_F32)
const float kHalfPi = 1.57079637, kHalfPiRest = -4.37113883e-08;

float asin_polynomial(float z) {
  precise float p = 0.033690847;
  p = p * z + 0.017149238;
  p = p * z + 0.031100662;
  p = p * z + 0.044599403;
  p = p * z + 0.07500094;
  p = p * z + 0.16666666;
  return p;
}

float atan_polynomial(float z) {
  precise float p = -0.064518414;
  p = p * z + 0.10743705;
  p = p * z - 0.14263953;
  p = p * z + 0.1999954;
  p = p * z - 0.3333333;
  return p;
}

#elif defined(COMPUTE_F64)
const double kHalfPi = 1.5707963267948966lf, kHalfPiRest = 6.123233995736766e-17lf;

double asin_polynomial(double z) {
  precise double p = 0.028757851548184377lf;
  p = p * z - 0.014851887352956897lf;
  p = p * z + 0.01740087963582327lf;
  p = p * z + 0.005457506642064085lf;
  p = p * z + 0.010322814369605943lf;
  p = p * z + 0.011479177411895745lf;
  p = p * z + 0.013971212973930064lf;
  p = p * z + 0.017352392720840923lf;
  p = p * z + 0.02237217294215135lf;
  p = p * z + 0.0303819441385312lf;
  p = p * z + 0.04464285714635543lf;
  p = p * z + 0.07499999999998433lf;
  p = p * z + 0.16666666666666669lf;
  return p;
}

double atan_polynomial(double z) {
  precise double p = -0.01917627142454866lf;
  p = p * z + 0.039231155535972236lf;
  p = p * z - 0.050854323344537766lf;
  p = p * z + 0.05858145586925483lf;
  p = p * z - 0.06664511064506054lf;
  p = p * z + 0.07692183163643067lf;
  p = p * z - 0.09090904576953705lf;
  p = p * z + 0.11111111015227558lf;
  p = p * z - 0.14285714284666184lf;
  p = p * z + 0.19999999999995519lf;
  p = p * z - 0.3333333333333333lf;
  return p;
}
#endif

// Returns asin(sqrt(z)) for z <= 1/4. Its high part is that of the root. If z is (1 - x) / 2, the
// result is acos(x) / 2.
Pair asin_of_root(VALUE z) {
  const Pair root = root_of(Pair(z, VALUE(0)));
  precise const VALUE rest = root.low + root.high * (z * asin_polynomial(z));
  return Pair(root.high, rest);
}

// Returns factor * pi / 2 - x for a factor of 1 or 2. |x| is at most factor * pi / 2.
VALUE before_half_pi(VALUE factor, Pair x) {
  const Pair difference = ordered_sum(factor * kHalfPi, -x.high);
  precise const VALUE result =
      difference.high + (difference.low + (factor * kHalfPiRest - x.low));
  return result;
}

VALUE asin_of(VALUE x) {
  const VALUE size = magnitude_of(x);
  if (is_nan(x)) return x;
  if (size > VALUE(1)) return VALUE(quiet_nan());
  if (size > VALUE(0.5)) {
    const Pair half_of = asin_of_root(VALUE(0.5) * (VALUE(1) - size));
    const Pair rest = Pair(VALUE(2) * half_of.high, VALUE(2) * half_of.low);
    return with_sign_of(before_half_pi(VALUE(1), rest), x);
  }
  precise const VALUE z = x * x;
  precise const VALUE result = size + size * (z * asin_polynomial(z));
  return with_sign_of(result, x);
}

VALUE acos_of(VALUE x) {
  const VALUE size = magnitude_of(x);
  if (is_nan(x)) return x;
  if (size > VALUE(1)) return VALUE(quiet_nan());
  if (size > VALUE(0.5)) {
    const Pair half_of = asin_of_root(VALUE(0.5) * (VALUE(1) - size));
    if (!has_sign(x)) return VALUE(2) * (half_of.high + half_of.low);
    return VALUE(2) * before_half_pi(VALUE(1), half_of);
  }
  precise const VALUE z = x * x;
  return before_half_pi(VALUE(1), Pair(x, x * (z * asin_polynomial(z))));
}

// Returns atan(x). If |x| is above tan(pi / 8), t is the tangent of the result less pi / 4 or less
// pi / 2, where the sign of x is left out.
VALUE atan_of(VALUE x) {
  const VALUE size = magnitude_of(x);
  if (is_nan(x)) return x;
  VALUE t = size, factor = VALUE(0);
  if (size > VALUE(2.4142136)) {
    t = -quotient_of(VALUE(1), size);
    factor = VALUE(1);
  } else if (size > VALUE(0.41421357)) {
    t = quotient_of(size - VALUE(1), size + VALUE(1));
    factor = VALUE(0.5);
  }
  precise const VALUE z = t * t;
  precise const VALUE rest = t * (z * atan_polynomial(z)) + factor * kHalfPiRest;
  precise const VALUE result = factor * kHalfPi + (t + rest);
  return with_sign_of(result, x);
}

// The result for zeros, infinities and NaN is that of atan2() in C.
VALUE atan2_of(VALUE y, VALUE x) {
  if (is_nan(y)) return y;
  if (is_nan(x)) return x;
  const VALUE size_y = magnitude_of(y), size_x = magnitude_of(x);
  VALUE ratio = quotient_of(size_y, size_x);
  if (is_zero(y) && is_zero(x)) ratio = VALUE(0);
  if (size_y == VALUE(infinity()) && size_x == VALUE(infinity())) ratio = VALUE(1);
  VALUE angle = atan_of(ratio);
  if (has_sign(x) && ratio != VALUE(infinity())) {
    angle = before_half_pi(VALUE(2), Pair(angle, VALUE(0)));
  }
  return with_sign_of(angle, y);
}
