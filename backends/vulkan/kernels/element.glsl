// Elements in memory: their dtypes, as in backplane/base.h, and conversions that round once.
#define BP_BOOL 1u
#define BP_I8 4u
#define BP_I16 5u
#define BP_I32 6u
#define BP_I64 7u
#define BP_U8 8u
#define BP_F16 12u
#define BP_BF16 13u
#define BP_F32 14u
#define BP_F64 15u

uint size_of(uint dtype) {
  if (dtype == BP_BOOL || dtype == BP_I8 || dtype == BP_U8) return 1u;
  if (dtype == BP_I16 || dtype == BP_F16 || dtype == BP_BF16) return 2u;
  if (dtype == BP_I32 || dtype == BP_F32) return 4u;
  return 8u;
}

// ---- Bits of up to 32 ---------------------------------------------------------------------------

uint load_bits(uint size, uint64_t address) {
  if (size == 1u) return uint(Bytes1(address).value);
  if (size == 2u) return uint(Bytes2(address).value);
  return Bytes4(address).value;
}

void store_bits(uint size, uint64_t address, uint bits) {
  if (size == 1u) {
    Bytes1(address).value = uint8_t(bits);
  } else if (size == 2u) {
    Bytes2(address).value = uint16_t(bits);
  } else {
    Bytes4(address).value = bits;
  }
}

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

float infinity() { return uintBitsToFloat(0x7f800000u); }
float quiet_nan() { return uintBitsToFloat(0x7fc00000u); }

// Numbers are compared by their bits, because cards take subnormal numbers for 0 where they compare
// floats. Zeros of both signs are equal.
int order_of(float x) {
  const int bits = floatBitsToInt(x);
  return bits < 0 ? -(bits & 0x7fffffff) : bits;
}

// Returns whether a is below b. NaN is above infinity or below -infinity.
bool is_below(float a, float b) { return order_of(a) < order_of(b); }

// Returns the larger number, or NaN if one of them is NaN.
float larger_of(float a, float b) {
  return is_nan(b) ? b : (!is_nan(a) && is_below(a, b) ? b : a);
}

// ---- Floats, computed with in f32 ---------------------------------------------------------------

float f16_to_f32(uint bits) {
  const uint magnitude = bits & 0x7fffu, exponent = magnitude >> 10;
  float value = float(magnitude) * 5.9604644775390625e-8;  // The value is subnormal.
  if (exponent != 0u) value = uintBitsToFloat((magnitude << 13) + 0x38000000u);
  if (exponent == 31u) value = uintBitsToFloat((magnitude << 13) | 0x7f800000u);
  return uintBitsToFloat(floatBitsToUint(value) | (bits & 0x8000u) << 16);
}

// Rounds to nearest even in integer arithmetic, because drivers convert subnormal numbers in
// different ways.
uint f32_to_f16(float value) {
  const uint bits = floatBitsToUint(value), magnitude = bits & 0x7fffffffu;
  const uint sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // It rounds beyond the largest.
  if (magnitude >= 0x38800000u) {
    const uint rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return sign | ((rounded - 0x38000000u) >> 13);
  }
  if (magnitude < 0x33000000u) return sign;  // Below half the smallest number.
  const uint shift = 126u - (magnitude >> 23);
  const uint significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint result = significand >> shift, rest = significand & ((1u << shift) - 1u);
  const uint half_way = 1u << (shift - 1u);
  const bool is_up = rest > half_way || (rest == half_way && (result & 1u) != 0u);
  return sign | (is_up ? result + 1u : result);
}

uint f32_to_bf16(float value) {
  const uint bits = floatBitsToUint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

float decode_f32(uint dtype, uint bits) {
  if (dtype == BP_F16) return f16_to_f32(bits);
  if (dtype == BP_BF16) return uintBitsToFloat(bits << 16);
  if (dtype == BP_BOOL) return bits != 0u ? 1.0 : 0.0;
  return uintBitsToFloat(bits);
}

uint encode_f32(uint dtype, float value) {
  if (dtype == BP_F16) return f32_to_f16(value);
  if (dtype == BP_BF16) return f32_to_bf16(value);
  // A NaN gives 1 too. The bits are compared, because comparisons may take subnormal numbers for 0.
  if (dtype == BP_BOOL) return (floatBitsToUint(value) & 0x7fffffffu) != 0u ? 1u : 0u;
  return floatBitsToUint(value);
}

float load_f32(uint dtype, uint64_t address) {
  return decode_f32(dtype, load_bits(size_of(dtype), address));
}

void store_f32(uint dtype, uint64_t address, float value) {
  store_bits(size_of(dtype), address, encode_f32(dtype, value));
}

// Returns the f32 next to a value of more bits, towards zero. Its last bit says whether bits were
// dropped.
float to_odd(float nearest, bool is_above, bool is_exact) {
  const uint bits = floatBitsToUint(nearest);
  if (is_exact) return nearest;
  return uintBitsToFloat((is_above ? bits - 1u : bits) | 1u);
}

// ---- Integers -----------------------------------------------------------------------------------

// Decodes an integer of up to 32 bits.
int decode_i32(uint dtype, uint bits) {
  if (dtype == BP_I8) return int(bits << 24) >> 24;
  if (dtype == BP_I16) return int(bits << 16) >> 16;
  return int(bits);
}

uint encode_i32(uint dtype, int value) {
  if (dtype == BP_BOOL) return value != 0 ? 1u : 0u;
  return uint(value);
}

int64_t decode_i64(uint dtype, uint64_t bits) {
  if (dtype == BP_I64) return int64_t(bits);
  return int64_t(decode_i32(dtype, uint(bits)));
}

uint64_t encode_i64(uint dtype, int64_t value) {
  if (dtype == BP_BOOL) return value != 0l ? 1ul : 0ul;
  return uint64_t(value);
}

uint64_t load_wide_bits(uint size, uint64_t address) {
  if (size == 8u) return Bytes8(address).value;
  return uint64_t(load_bits(size, address));
}

void store_wide_bits(uint size, uint64_t address, uint64_t bits) {
  if (size == 8u) {
    Bytes8(address).value = bits;
  } else {
    store_bits(size, address, uint(bits));
  }
}

int64_t load_i64(uint dtype, uint64_t address) {
  return decode_i64(dtype, load_wide_bits(size_of(dtype), address));
}

// Returns whether an index names one of `extent` places. The comparison is unsigned, because
// lavapipe treats a negative i32 that was converted to i64 as not below 0.
bool is_place(int64_t index, int64_t extent) { return uint64_t(index) < uint64_t(extent); }

// Returns the index that acts for `index`: the nearest place if indices are clamped, else itself.
int64_t acting(int64_t index, int64_t extent, uint clamps) {
  return clamps != 0u ? max(min(index, extent - 1l), 0l) : index;
}

void store_i64(uint dtype, uint64_t address, int64_t value) {
  store_wide_bits(size_of(dtype), address, encode_i64(dtype, value));
}
