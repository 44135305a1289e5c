// The primitives of `compute` on VALUE, as ops_spec/emit_glsl.py calls them.
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
double larger_of(double a, double b) { return is_nan(b) ? b : (a < b ? b : a); }
double smaller_of(double a, double b) { return is_nan(b) ? b : (b < a ? b : a); }
double exp_of(double x) { return exp_f64(x); }
double log_of(double x) { return log_f64(x); }
double tanh_of(double x) { return tanh_f64(x); }
double erfinv_of(double x) { return erfinv_f64(x); }

#else
bool is_below(VALUE a, VALUE b) { return a < b; }
VALUE negative_of(VALUE x) { return -x; }
VALUE magnitude_of(VALUE x) { return x < VALUE(0) ? -x : x; }
VALUE larger_of(VALUE a, VALUE b) { return a < b ? b : a; }
VALUE smaller_of(VALUE a, VALUE b) { return b < a ? b : a; }
#endif
