// The primitives of `compute` on VALUE, as ops_spec/emit_glsl.py calls them. Those that the included
// files define are written once for f32 and f64.
#include "erfinv.glsl"
#if defined(COMPUTE_F32) || defined(COMPUTE_F64)
// The driver's own division and root, which rounded.glsl corrects.
float quotient_near(float a, float b) { return a / b; }
float root_near(float x) { return sqrt(x); }
#endif
#if defined(COMPUTE_F32)
#include "rounded.glsl"
float quotient_of(float a, float b) { return divide_f32(a, b); }
float root_of(float x) { return root_f32(x); }
bool has_sign(float x) { return (floatBitsToUint(x) & 0x80000000u) != 0u; }
float negative_of(float x) { return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u); }
float magnitude_of(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0x7fffffffu); }
float smaller_of(float a, float b) {
  return is_nan(b) ? b : (!is_nan(a) && is_below(b, a) ? b : a);
}
bool is_infinite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7fffffffu) < 0x7f800000u; }
float exp_of(float x) { return exp_f32(x); }
float log_of(float x) { return log_f32(x); }
float tanh_of(float x) { return tanh_f32(x); }
float erfinv_of(float x) { return erfinv_f32(x); }

#elif defined(COMPUTE_F64)
uint64_t bits_of_f64(double x) { return packUint2x32(unpackDouble2x32(x)); }
double f64_of_bits(uint64_t bits) { return packDouble2x32(unpackUint2x32(bits)); }
#include "rounded64.glsl"
double quotient_of(double a, double b) { return divide_f64(a, b); }
double root_of(double x) { return root_f64(x); }
bool has_sign(double x) { return (unpackDouble2x32(x).y & 0x80000000u) != 0u; }
bool is_below(double a, double b) { return a < b; }
double negative_of(double x) { return -x; }
double magnitude_of(double x) { return abs(x); }
double smaller_of(double a, double b) { return is_nan(b) ? b : (b < a ? b : a); }
bool is_infinite(double x) { return abs(x) == double(infinity()); }
bool is_finite(double x) { return abs(x) < double(infinity()); }
double exp_of(double x) { return exp_f64(x); }
double log_of(double x) { return log_f64(x); }
double tanh_of(double x) { return tanh_f64(x); }
double erfinv_of(double x) { return erfinv_f64(x); }

#else
bool is_nan(VALUE) { return false; }
bool is_infinite(VALUE) { return false; }
bool is_finite(VALUE) { return true; }
bool is_below(VALUE a, VALUE b) { return a < b; }
#if defined(COMPUTE_I32)
const int kValueBits = 32;
#else
const int kValueBits = 64;
#endif
// Returns x * 2^bits, which wraps; 0 if VALUE has not more bits than that, or `bits` is negative.
VALUE shift_left(VALUE x, VALUE bits) {
  return bits >= VALUE(0) && bits < VALUE(kValueBits) ? x << bits : VALUE(0);
}
// Returns x / 2^bits, rounded down; 0 or -1, as x is, if VALUE has not more bits than that, or
// `bits` is negative.
VALUE shift_right(VALUE x, VALUE bits) {
  return x >> (bits >= VALUE(0) && bits < VALUE(kValueBits) ? bits : VALUE(kValueBits - 1));
}
// Returns the rest of a / b with the sign of a, and 0 where b is 0. The rest over -1 is 0, and the
// quotient of the smallest integer does not exist. Of negative numbers `%` is undefined.
VALUE remainder_of(VALUE a, VALUE b) {
  if (b == VALUE(0) || b == VALUE(-1)) return VALUE(0);
  return a - a / b * b;
}
// Returns a / b, rounded down, and 0 where b is 0.
VALUE floor_quotient_of(VALUE a, VALUE b) {
  if (b == VALUE(0)) return VALUE(0);
  if (b == VALUE(-1)) return -a;
  const VALUE quotient = a / b;
  return quotient * b != a && (a < VALUE(0)) != (b < VALUE(0)) ? quotient - VALUE(1) : quotient;
}
VALUE negative_of(VALUE x) { return -x; }
VALUE magnitude_of(VALUE x) { return x < VALUE(0) ? -x : x; }
VALUE larger_of(VALUE a, VALUE b) { return a < b ? b : a; }
VALUE smaller_of(VALUE a, VALUE b) { return b < a ? b : a; }
#endif
#if defined(COMPUTE_F32) || defined(COMPUTE_F64)
#include "numbers.glsl"
#include "pairs.glsl"
#include "logarithm.glsl"
#include "exponential.glsl"
#include "trigonometric.glsl"
#include "inverse_trigonometric.glsl"
#include "hyperbolic.glsl"
#include "error_function.glsl"
#include "remainder.glsl"
// Returns a / b, rounded, and then rounded down.
VALUE floor_quotient_of(VALUE a, VALUE b) { return floor_of(quotient_of(a, b)); }
#endif
// Returns the rest of a / b with the sign of b, that of a where it is 0.
VALUE modulo_of(VALUE a, VALUE b) {
  const VALUE rest = remainder_of(a, b);
  const bool is_other = (rest < VALUE(0)) != (b < VALUE(0));
  return rest != VALUE(0) && !is_nan(rest) && is_other ? rest + b : rest;
}
