// The elements of quantised tensors: codes of 2 to 8 bits, packed from the low bits of a byte up, and
// what each of them stands for. A dtype is a specialisation constant, so that no test of it is left.
#define BP_I4 2u
#define BP_U4 3u
#define BP_F8E4M3FN 18u
#define BP_F8E5M2 19u
#define BP_F4E2M1 22u
#define BP_F8E8M0FNU 23u
#define BP_F6E2M3 24u
#define BP_F6E3M2 25u
#define BP_I2 26u
#define BP_U2 27u

uint bits_of_code(uint dtype) {
  if (dtype == BP_I2 || dtype == BP_U2) return 2u;
  if (dtype == BP_I4 || dtype == BP_U4 || dtype == BP_F4E2M1) return 4u;
  if (dtype == BP_F6E2M3 || dtype == BP_F6E3M2) return 6u;
  return 8u;
}

bool is_signed_integer(uint dtype) { return dtype == BP_I8 || dtype == BP_I4 || dtype == BP_I2; }
bool is_integer_code(uint dtype) {
  return is_signed_integer(dtype) || dtype == BP_U8 || dtype == BP_U4 || dtype == BP_U2;
}
bool is_float_code(uint dtype) {
  return dtype == BP_F8E4M3FN || dtype == BP_F8E5M2 || dtype == BP_F6E2M3 || dtype == BP_F6E3M2 ||
         dtype == BP_F4E2M1;
}

// Small floats with a sign. A magnitude beyond the largest code is NaN, or first infinity.
struct SmallFloat {
  uint fraction_bits;
  int bias;
  uint largest_code;
  uint nan_code;  // 0 if no code is NaN.
};

SmallFloat small_float(uint dtype) {
  if (dtype == BP_F8E4M3FN) return SmallFloat(3u, 7, 0x7eu, 0x7fu);
  if (dtype == BP_F8E5M2) return SmallFloat(2u, 15, 0x7bu, 0x7eu);
  if (dtype == BP_F6E2M3) return SmallFloat(3u, 1, 0x1fu, 0u);
  if (dtype == BP_F6E3M2) return SmallFloat(2u, 3, 0x1fu, 0u);
  return SmallFloat(1u, 1, 7u, 0u);
}

// Returns the number that the magnitude of a small float stands for. It is a normal f32, or 0.
float magnitude_of_code(SmallFloat f, uint magnitude) {
  const uint fraction = magnitude & ((1u << f.fraction_bits) - 1u);
  const int exponent = int(magnitude >> f.fraction_bits);
  if (exponent == 0) return float(fraction) * power_of_two(1 - f.bias - int(f.fraction_bits));
  return uintBitsToFloat(uint(exponent + 127 - f.bias) << 23 | fraction << (23u - f.fraction_bits));
}

// Returns the number that a code stands for. Every one is an f32.
float number_of_code(uint dtype, uint code) {
  const uint bits = bits_of_code(dtype);
  if (is_signed_integer(dtype)) return float(int(code << (32u - bits)) >> (32u - bits));
  if (dtype == BP_F8E8M0FNU) {
    if (code == 255u) return quiet_nan();
    return uintBitsToFloat(code == 0u ? 0x00400000u : code << 23);
  }
  if (!is_float_code(dtype)) return float(code);
  const SmallFloat f = small_float(dtype);
  const uint magnitude = code & ((1u << (bits - 1u)) - 1u), sign = code >> (bits - 1u) << 31;
  float value = magnitude_of_code(f, magnitude);
  if (magnitude > f.largest_code) {
    const bool is_infinite = magnitude == f.largest_code + 1u && magnitude != f.nan_code;
    value = is_infinite ? infinity() : quiet_nan();
  }
  return uintBitsToFloat(floatBitsToUint(value) | sign);
}

// Returns the code of the value nearest to x, ties to even. A value beyond the largest becomes the
// largest one, and NaN becomes NaN, or 0 in a dtype without NaN.
uint code_of_float(uint dtype, float x) {
  const SmallFloat f = small_float(dtype);
  if (is_nan(x)) return f.nan_code;
  const uint sign = floatBitsToUint(x) >> 31 << (bits_of_code(dtype) - 1u);
  const uint magnitude = floatBitsToUint(x) & 0x7fffffffu;
  if (magnitude >= floatBitsToUint(magnitude_of_code(f, f.largest_code))) {
    return sign | f.largest_code;
  }
  // All numbers below the normal ones of f32 become 0.
  const int own = int(magnitude >> 23) - 127, least = 1 - f.bias, exponent = max(own, least);
  const uint drop = uint(23 - int(f.fraction_bits) + exponent - own);
  if (drop > 24u) return sign;
  const uint significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint kept = significand >> drop, rest = significand & ((1u << drop) - 1u);
  const uint half_way = 1u << (drop - 1u);
  const bool is_up = rest > half_way || (rest == half_way && (kept & 1u) != 0u);
  return sign | (kept + (is_up ? 1u : 0u) + (uint(exponent - least) << f.fraction_bits));
}

// Returns the code of round(quotient) + zero, limited to the integers of the dtype. NaN counts as 0.
uint code_of_integer(uint dtype, float quotient, float zero) {
  const float kBeyond = 1024.0;  // With any zero it lies beyond every dtype.
  const uint bits = bits_of_code(dtype);
  const bool has_sign = is_signed_integer(dtype);
  const float low = has_sign ? -float(1u << (bits - 1u)) : 0.0;
  const float high = float((1u << (has_sign ? bits - 1u : bits)) - 1u);
  const float number = is_nan(quotient) ? 0.0 : clamp(quotient, -kBeyond, kBeyond);
  const float stored = clamp(roundEven(number) + zero, low, high);
  return uint(int(stored)) & ((1u << bits) - 1u);
}

// Returns the code that begins at a bit. It is read from one byte, unless it reaches into the next.
uint load_code(uint bits, uint64_t base, int64_t bit) {
  const uint64_t address = base + uint64_t(bit >> 3);
  if (bits == 8u) return uint(Bytes1(address).value);
  const uint shift = uint(bit) & 7u;
  uint word = uint(Bytes1(address).value);
  if (bits == 6u && shift > 2u) word |= uint(Bytes1(address + 1ul).value) << 8;
  return word >> shift & ((1u << bits) - 1u);
}

// Returns an element of a tensor of scales: a float, or a code of 8 bits.
float load_scale(uint dtype, uint64_t address) {
  if (dtype == BP_F8E8M0FNU || dtype == BP_F8E4M3FN) {
    return number_of_code(dtype, uint(Bytes1(address).value));
  }
  return load_f32(dtype, address);
}

// Returns the same times the scale of the whole tensor, which is an f32 at `whole`; 0: there is none.
float load_scale(uint dtype, uint64_t address, uint64_t whole) {
  const float scale = load_scale(dtype, address);
  return whole == 0ul ? scale : scale * load_f32(BP_F32, whole);
}
