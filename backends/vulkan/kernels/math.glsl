// Functions of f32 within the declared numerics: what a driver offers may be far off. Multiples of
// constants are taken in two parts, since no fused multiply-add is at hand.

// The polynomial part of exp: exp(r) - 1 for |r| <= ln(2) / 2.
float exp_tail(float r) {
  precise float p = 0.0013926213141530752;
  p = p * r + 0.008363203145563602;
  p = p * r + 0.041666556149721146;
  p = p * r + 0.16666576266288757;
  p = p * r + 0.5;
  precise const float square = r * r;
  precise const float result = p * square + r;
  return result;
}

const float kLog2E = 1.44269504088896341;
const float kLn2High = 0.693359375;  // 10 bits: its product with an exponent is exact.
const float kLn2Low = -2.12194440054690583e-4;

// x = n * ln(2) + r.
float nearest_exponent(float x) { return roundEven(x * kLog2E); }
float exponent_rest(float x, float n) {
  precise const float high = x - n * kLn2High;
  precise const float rest = high - n * kLn2Low;
  return rest;
}

// 2^n for n in [-126, 127].
float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }

float exp_f32(float x) {
  const float capped = min(max(x, -104.0), 89.0);
  const float n = nearest_exponent(capped);
  const float significand = 1.0 + exp_tail(exponent_rest(capped, n));
  // 2^n in two factors: the result can be subnormal, or infinite.
  const int whole = int(n), half_of = whole >> 1;
  const float result = significand * power_of_two(half_of) * power_of_two(whole - half_of);
  return is_nan(x) ? x : result;
}

// exp(x) for x <= 0; below -87.5, where it is no normal number, it is 0. NaN stays.
float exp_of_negative(float x) {
  const float n = nearest_exponent(x);
  const float significand = 1.0 + exp_tail(exponent_rest(x, n));
  return x < -87.5 ? 0.0 : significand * power_of_two(int(n));
}

// exp(x) - 1, to the last places for every x.
float expm1_f32(float x) {
  const float capped = min(max(x, -25.0), 89.0);
  const float n = nearest_exponent(capped);
  const float tail = exp_tail(exponent_rest(capped, n));
  const int whole = int(n), half_of = whole >> 1;
  const float scale = power_of_two(half_of), rest = power_of_two(whole - half_of);
  precise const float at_whole = scale * rest;
  precise float result = at_whole * tail + (at_whole - 1.0);
  if (n == 0.0) result = tail;
  if (whole == 128) result = (1.0 + tail) * scale * rest;
  return is_nan(x) ? x : result;
}

// With x = 2^k * m, m in [sqrt(1/2), sqrt(2)), f = m - 1 and s = f / (2 + f):
// log(m) = 2 s + 2 s^3 / 3 + ... = f - (f^2 / 2 - s * (f^2 / 2 + R)).
float log_f32(float x) {
  uint bits = floatBitsToUint(x);
  int k = 0;
  if (bits < 0x00800000u) {  // Subnormal.
    bits = floatBitsToUint(x * 33554432.0);
    k = -25;
  }
  bits += 0x3f800000u - 0x3f3504f3u;
  k += int(bits >> 23) - 127;
  const float m = uintBitsToFloat((bits & 0x007fffffu) + 0x3f3504f3u);
  precise const float f = m - 1.0;
  precise const float s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  precise const float r =
      z * (0.66666662693 + z * (0.40000972152 + z * (0.28498786688 + z * 0.24279078841)));
  precise const float whole = float(k);
  precise const float low = s * (half_square + r) + whole * 9.0580006145e-6;
  precise const float result = ((low - half_square) + f) + whole * 0.69313812256;
  if (x == 0.0) return -infinity();
  if (is_nan(x) || x == infinity()) return x;
  return x < 0.0 ? quiet_nan() : result;
}

// p / (p + 2) with p = exp(2 |x|) - 1. Beyond 9.5 it is 1.
float tanh_f32(float x) {
  const float p = expm1_f32(2.0 * min(abs(x), 9.5));
  const float magnitude = p / (p + 2.0);
  const uint sign = floatBitsToUint(x) & 0x80000000u;
  return is_nan(x) ? x : uintBitsToFloat(floatBitsToUint(magnitude) | sign);
}

// y * sigmoid(x), without overflow.
float times_sigmoid(float y, float x) {
  const float power = exp_f32(-abs(x));
  const float part = x < 0.0 ? power : 1.0;
  return y * (part / (1.0 + power));
}

float sigmoid_f32(float x) { return is_nan(x) ? x : times_sigmoid(1.0, x); }

// The distribution function of the standard normal distribution. The error is relative to 1.
float normal_cdf(float x) {
  const float z = x * x;
  float p = 6.26080991412423e-06, q = 5.295127601609623e-07;
  p = p * z + 0.00034141442020362657;
  p = p * z + 0.005698176173641594;
  p = p * z + 0.05205304917467261;
  p = p * z + 0.39894182905661973;
  q = q * z + 0.0001224520220620703;
  q = q * z + 0.002862352151741116;
  q = q * z + 0.03881939161317791;
  q = q * z + 0.297137022646427;
  q = q * z + 1.0;
  const float ratio = x * p / q;
  if (abs(x) >= 5.3) return x < 0.0 ? 0.0 : 1.0;
  return 0.5 + ratio;
}

// The argument of the sigmoid in gelu(tanh), sqrt(8 / pi) * (x + 0.044715 x^3). Where the sigmoid is
// 0 or 1, x stays at 40, so that the cube does not overflow.
float cap_for_gelu(float x) { return abs(x) > 40.0 ? sign(x) * 40.0 : x; }
float gelu_argument(float x) {
  return x * (x * x * (0.044715 * 1.5957691216057308) + 1.5957691216057308);
}

// Like the formulas of the ops: infinity times zero is NaN.
float gelu_f32(float x) { return x * normal_cdf(x); }

float gelu_derivative(float x) {
  const float density = 0.3989422804014327 * exp_f32(-0.5 * x * x);
  return normal_cdf(x) + x * density;
}

float gelu_tanh_f32(float x) { return times_sigmoid(x, gelu_argument(cap_for_gelu(x))); }

// With s = sigmoid(g(x)): s + x * s * (1 - s) * g'(x).
float gelu_tanh_derivative(float x) {
  const float capped = cap_for_gelu(x), argument = gelu_argument(capped);
  const float s = sigmoid_f32(argument), rest = sigmoid_f32(-argument);
  const float slope = capped * capped * (3.0 * 0.044715 * 1.5957691216057308) + 1.5957691216057308;
  return s + capped * slope * (s * rest);
}

float silu_f32(float x) { return times_sigmoid(x, x); }

float silu_derivative(float x) { return sigmoid_f32(x) * (1.0 + x * sigmoid_f32(-x)); }
