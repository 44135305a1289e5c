// The elements of quantised tensors: codes of 2 to 8 bits, packed from the low bits of a byte up,
// and what each of them stands for. Dtypes are known at run time, so one kernel serves all of them;
// a kernel that reads a code often keeps the numbers of all codes in a table of shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/device.cuh"
#include "backplane/tensor.h"

namespace bp::cuda {

constexpr int kMostCodes = 256;  // Of one dtype.

// Returns the bits of an element of a quantised tensor.
__host__ __device__ __forceinline__ uint32_t bits_of_code(uint32_t dtype) {
  switch (dtype) {
    case BP_I2:
    case BP_U2:
      return 2;
    case BP_I4:
    case BP_U4:
    case BP_F4E2M1:
      return 4;
    case BP_F6E2M3:
    case BP_F6E3M2:
      return 6;
    default:
      return 8;
  }
}

__host__ __device__ __forceinline__ bool is_signed_code(uint32_t dtype) {
  return dtype == BP_I8 || dtype == BP_I4 || dtype == BP_I2;
}
__host__ __device__ __forceinline__ bool is_integer_code(uint32_t dtype) {
  return is_signed_code(dtype) || dtype == BP_U8 || dtype == BP_U4 || dtype == BP_U2;
}

// A float of at most 8 bits with a sign. A magnitude beyond the largest code is NaN, or first
// infinity.
struct SmallFloat {
  uint32_t fraction_bits;
  int bias;
  uint32_t largest_code;
  uint32_t nan_code;  // 0 if no code is NaN.
};

__host__ __device__ __forceinline__ SmallFloat small_float(uint32_t dtype) {
  switch (dtype) {
    case BP_F8E4M3FN:
      return {3, 7, 0x7e, 0x7f};
    case BP_F8E5M2:
      return {2, 15, 0x7b, 0x7e};
    case BP_F6E2M3:
      return {3, 1, 0x1f, 0};
    case BP_F6E3M2:
      return {2, 3, 0x1f, 0};
    default:
      return {1, 1, 7, 0};  // BP_F4E2M1
  }
}

__host__ __device__ __forceinline__ float power_of_two(int exponent) {
  return bits_as<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

__host__ __device__ __forceinline__ float quiet_nan() { return bits_as<float>(0x7fc00000u); }

// Returns the number that the magnitude of a small float stands for. It is a normal f32, or 0.
__host__ __device__ __forceinline__ float magnitude_of_code(const SmallFloat& f,
                                                            uint32_t magnitude) {
  const uint32_t fraction = magnitude & ((1u << f.fraction_bits) - 1u);
  const auto exponent = static_cast<int>(magnitude >> f.fraction_bits);
  if (exponent == 0) {
    return static_cast<float>(fraction) *
           power_of_two(1 - f.bias - static_cast<int>(f.fraction_bits));
  }
  return bits_as<float>(static_cast<uint32_t>(exponent + 127 - f.bias) << 23 |
                        fraction << (23u - f.fraction_bits));
}

// Returns the number that a code stands for. Every one is an f32.
__host__ __device__ inline float number_of_code(uint32_t dtype, uint32_t code) {
  const uint32_t bits = bits_of_code(dtype);
  if (is_signed_code(dtype)) {
    return static_cast<float>(static_cast<int32_t>(code << (32u - bits)) >> (32u - bits));
  }
  if (is_integer_code(dtype)) return static_cast<float>(code);
  if (dtype == BP_F8E8M0FNU) {
    if (code == 255u) return quiet_nan();
    return bits_as<float>(code == 0u ? 0x00400000u : code << 23);
  }
  const SmallFloat f = small_float(dtype);
  const uint32_t magnitude = code & ((1u << (bits - 1u)) - 1u);
  const uint32_t sign = code >> (bits - 1u) << 31;
  float value = magnitude_of_code(f, magnitude);
  if (magnitude > f.largest_code) {
    const bool is_infinite = magnitude == f.largest_code + 1u && magnitude != f.nan_code;
    value = is_infinite ? infinity<float>() : quiet_nan();
  }
  return bits_as<float>(bits_as<uint32_t>(value) | sign);
}

// Returns the code of the value nearest to x, ties to even. A value beyond the largest becomes the
// largest one, and NaN becomes NaN, or 0 in a dtype without NaN.
__host__ __device__ inline uint32_t code_of_float(uint32_t dtype, float x) {
  const SmallFloat f = small_float(dtype);
  if (is_nan(x)) return f.nan_code;
  const uint32_t sign = bits_as<uint32_t>(x) >> 31 << (bits_of_code(dtype) - 1u);
  const uint32_t magnitude = bits_as<uint32_t>(x) & 0x7fffffffu;
  if (magnitude >= bits_as<uint32_t>(magnitude_of_code(f, f.largest_code))) {
    return sign | f.largest_code;
  }
  // All numbers below the normal ones of f32 become 0.
  const int own = static_cast<int>(magnitude >> 23) - 127, least = 1 - f.bias;
  const int exponent = own > least ? own : least;
  const auto drop = static_cast<uint32_t>(23 - static_cast<int>(f.fraction_bits) + exponent - own);
  if (drop > 24u) return sign;
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = significand >> drop, rest = significand & ((1u << drop) - 1u);
  const uint32_t half_way = 1u << (drop - 1u);
  const bool is_up = rest > half_way || (rest == half_way && (kept & 1u) != 0u);
  return sign |
         (kept + (is_up ? 1u : 0u) + (static_cast<uint32_t>(exponent - least) << f.fraction_bits));
}

// Returns the code of round(quotient) + zero, limited to the integers of the dtype. NaN counts
// as 0.
__host__ __device__ inline uint32_t code_of_integer(uint32_t dtype, float quotient, float zero) {
  constexpr float kBeyond = 1024;  // With any zero it lies beyond every dtype.
  const uint32_t bits = bits_of_code(dtype);
  const bool has_sign = is_signed_code(dtype);
  const float low = has_sign ? -static_cast<float>(1u << (bits - 1u)) : 0.0f;
  const auto high = static_cast<float>((1u << (has_sign ? bits - 1u : bits)) - 1u);
  float number = is_nan(quotient) ? 0.0f : quotient;
  number = number < -kBeyond ? -kBeyond : number > kBeyond ? kBeyond : number;
  float stored = rint(number) + zero;
  stored = stored < low ? low : stored > high ? high : stored;
  return static_cast<uint32_t>(static_cast<int32_t>(stored)) & ((1u << bits) - 1u);
}

// Returns the code that begins at a bit, counted from `base`. Only a code of 6 bits reaches into a
// second byte.
__host__ __device__ __forceinline__ uint32_t load_code(uint32_t bits, const std::byte* base,
                                                       int64_t bit) {
  const std::byte* const at = base + (bit >> 3);
  auto word = static_cast<uint32_t>(*at);
  if (bits == 8u) return word;
  const uint32_t shift = static_cast<uint32_t>(bit) & 7u;
  if (bits == 6u && shift > 2u) word |= static_cast<uint32_t>(at[1]) << 8;
  return word >> shift & ((1u << bits) - 1u);
}

// Returns element `at` of a tensor of scales: a float, or a code of 8 bits. `whole` is NULL, or the
// scale of the whole tensor, which multiplies it with one rounding.
__host__ __device__ __forceinline__ float load_scale(uint32_t dtype, const std::byte* base,
                                                     int64_t at, const float* whole) {
  float scale;
  switch (dtype) {
    case BP_F32:
      scale = reinterpret_cast<const float*>(base)[at];
      break;
    case BP_F16:
      scale = widen(reinterpret_cast<const Float16*>(base)[at]);
      break;
    case BP_BF16:
      scale = widen(reinterpret_cast<const BFloat16*>(base)[at]);
      break;
    default:
      scale = number_of_code(dtype, static_cast<uint32_t>(base[at]));
      break;
  }
  return whole == nullptr ? scale : product_of(scale, *whole);
}

}  // namespace bp::cuda
