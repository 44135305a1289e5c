// Functions of f32 within the declared numerics; a driver's own functions may have larger errors.
// Multiples of constants are computed in two parts, because there is no fused multiply-add.

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
const float kLn2High = 0.693359375;  // It has 10 bits, so its product with an exponent is exact.
const float kLn2Low = -2.12194440054690583e-4;

// Returns n in x = n * ln(2) + r.
float nearest_exponent(float x) { return roundEven(x * kLog2E); }
float exponent_rest(float x, float n) {
  precise const float high = x - n * kLn2High;
  precise const float rest = high - n * kLn2Low;
  return rest;
}

// Returns 2^n for n in [-126, 127].
float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }

float exp_f32(float x) {
  const float capped = min(max(x, -104.0), 89.0);
  const float n = nearest_exponent(capped);
  const float significand = 1.0 + exp_tail(exponent_rest(capped, n));
  // 2^n is two factors, because the result can be subnormal or infinite.
  const int whole = int(n), half_of = whole >> 1;
  const float result = significand * power_of_two(half_of) * power_of_two(whole - half_of);
  return is_nan(x) ? x : result;
}

// Returns exp(x) for x <= 0. Below -87.5, where exp(x) is not a normal number, it returns 0. A NaN
// stays.
float exp_of_negative(float x) {
  const float n = nearest_exponent(x);
  const float significand = 1.0 + exp_tail(exponent_rest(x, n));
  return x < -87.5 ? 0.0 : significand * power_of_two(int(n));
}

// Returns exp(x) - 1, exact to the last places for every x.
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

// Let x = 2^k * m with m in [sqrt(1/2), sqrt(2)), f = m - 1 and s = f / (2 + f). Then log(m) = 2 s
// + 2 s^3 / 3 + ... = f - (f^2 / 2 - s * (f^2 / 2 + R)).
float log_f32(float x) {
  uint bits = floatBitsToUint(x);
  int k = 0;
  if (bits < 0x00800000u) {  // x is subnormal.
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

// |tanh(x)| is p / (p + 2) with p = exp(2 |x|) - 1. Beyond 9.5 it is 1.
float tanh_f32(float x) {
  const float p = expm1_f32(2.0 * min(abs(x), 9.5));
  const float magnitude = p / (p + 2.0);
  const uint sign = floatBitsToUint(x) & 0x80000000u;
  return is_nan(x) ? x : uintBitsToFloat(floatBitsToUint(magnitude) | sign);
}

// Returns x * 2^n for n in [-378, 0]. The result can be subnormal or 0.
float scaled(float x, float n) {
  const int whole = int(n), third = whole / 3;
  return x * power_of_two(third) * power_of_two(third) * power_of_two(whole - 2 * third);
}

// Returns y * sigmoid(x), without overflow. For x below 0 it is y * exp(x) / (1 + exp(x)). The
// numerator is rounded once, because the exponential alone may be subnormal when y times it is not.
float times_sigmoid(float y, float x) {
  const float size = max(-abs(x), -250.0), n = nearest_exponent(size);
  const float significand = 1.0 + exp_tail(exponent_rest(size, n));
  const float numerator = x < 0.0 ? scaled(y * significand, n) : y;
  return x < -250.0 ? y * 0.0 : numerator / (1.0 + scaled(significand, n));
}

float sigmoid_f32(float x) { return is_nan(x) ? x : times_sigmoid(1.0, x); }

// The normal distribution at -t for t from 0 to 20. With e = significand * 2^n = exp(-t^2 / 2), its
// distribution function is ratio * e, exact to the last places, and its density is 0.3989 * e.
struct NormalTail {
  float ratio, significand, n;
};

NormalTail normal_tail(float t) {
  // (1 + t) * ratio is a polynomial in (t - 4) / (t + 4).
  precise const float q = (t - 4.0) / (t + 4.0);
  precise float p = -7.43745477e-05;
  p = p * q - 6.6737186e-05;
  p = p * q + 0.000690844841;
  p = p * q - 0.000299918756;
  p = p * q - 0.005002141;
  p = p * q + 0.0179394502;
  p = p * q - 0.0321978144;
  p = p * q + 0.0286000334;
  p = p * q + 0.0139996363;
  p = p * q - 0.0967034698;
  p = p * q + 0.4720532;
  NormalTail tail;
  tail.ratio = p / (1.0 + t);
  // t^2 = square + lost. The exponential would turn the lost part into many units in the last
  // place.
  precise const float square = t * t;
  precise const float high = uintBitsToFloat(floatBitsToUint(t) & 0xfffff000u), low = t - high;
  precise const float lost = ((high * high - square) + 2.0 * high * low) + low * low;
  tail.n = nearest_exponent(-0.5 * square);
  precise const float rest = exponent_rest(-0.5 * square, tail.n) - 0.5 * lost;
  tail.significand = 1.0 + exp_tail(rest);
  return tail;
}

// The argument of the sigmoid in gelu(tanh) is sqrt(8 / pi) * (x + 0.044715 x^3). If the sigmoid is
// 0 or 1, x is limited to 40, so that the cube does not overflow.
float cap_for_gelu(float x) { return abs(x) > 40.0 ? sign(x) * 40.0 : x; }
float gelu_argument(float x) {
  return x * (x * x * (0.044715 * 1.5957691216057308) + 1.5957691216057308);
}

// Returns gelu(x). As in the formula of the op, infinity times zero is NaN.
float gelu_f32(float x) {
  const NormalTail tail = normal_tail(abs(x) > 20.0 ? 20.0 : abs(x));
  if (x < -20.0) return x * 0.0;
  if (x < 0.0) return scaled(x * tail.ratio * tail.significand, tail.n);
  return x * (1.0 - scaled(tail.ratio * tail.significand, tail.n));
}

float gelu_derivative(float x) {
  const float t = abs(x) > 20.0 ? 20.0 : abs(x);
  const NormalTail tail = normal_tail(t);
  const float slope = scaled((tail.ratio - 0.3989422804014327 * t) * tail.significand, tail.n);
  if (abs(x) > 20.0) return x * 0.0 + (x < 0.0 ? 0.0 : 1.0);
  return x < 0.0 ? slope : 1.0 - slope;
}

float gelu_tanh_f32(float x) { return times_sigmoid(x, gelu_argument(cap_for_gelu(x))); }

// With s = sigmoid(g(x)), the derivative is s * (1 + x * (1 - s) * g'(x)).
float gelu_tanh_derivative(float x) {
  const float capped = cap_for_gelu(x), argument = gelu_argument(capped);
  const float rest = sigmoid_f32(-argument);
  const float slope = capped * capped * (3.0 * 0.044715 * 1.5957691216057308) + 1.5957691216057308;
  return times_sigmoid(1.0 + capped * slope * rest, argument);
}

float silu_f32(float x) { return times_sigmoid(x, x); }
