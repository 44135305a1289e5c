// The 16-bit floats, which a C++20 compiler need not have, and their exact conversions.
//
//            sign  exponent  fraction
//   Float16     1         5        10    IEEE 754 binary16
//   BFloat16    1         8         7    the upper half of an f32
//
// Kernels compute in Compute<T>: they widen() the elements, compute, and narrow() the result once.
// lanes-inl.hpp has the same conversions for vectors.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace bp::kernels {

// Returns the bits of the 16-bit float of kExponentBits that is nearest to x, ties to even. It
// rounds once, from f32 and from f64. A value beyond the largest finite one becomes infinity, and a
// NaN becomes a quiet NaN.
template <int kExponentBits, std::floating_point From>
constexpr uint16_t round_to_16_bits(From x) {
  using Bits = std::conditional_t<sizeof(From) == 4, uint32_t, uint64_t>;
  constexpr int kFromFraction = std::numeric_limits<From>::digits - 1,
                kFraction = 15 - kExponentBits;
  constexpr int kFromBias = std::numeric_limits<From>::max_exponent - 1;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr int kDropped = kFromFraction - kFraction;
  constexpr Bits kInfinity = std::bit_cast<Bits>(std::numeric_limits<From>::infinity());
  constexpr uint16_t kNarrowInfinity = ((1 << kExponentBits) - 1) << kFraction;

  const Bits bits = std::bit_cast<Bits>(x), magnitude = bits << 1 >> 1;
  const auto sign = static_cast<uint16_t>(bits >> (8 * sizeof(From) - 16) & 0x8000);
  const auto with_sign = [sign](Bits value) { return static_cast<uint16_t>(sign | value); };
  if (magnitude > kInfinity) {
    const Bits payload = magnitude >> kDropped & ((1 << kFraction) - 1);
    return with_sign(kNarrowInfinity | 1 << (kFraction - 1) | payload);
  }
  // Adds just under half a unit of the last kept bit, and the rest of the half if the kept part is
  // odd. A carry out of the fraction gives the next exponent, or infinity.
  const auto round = [](Bits value, int dropped) {
    const Bits is_odd = value >> dropped & 1;
    return (value + (Bits{1} << (dropped - 1)) - 1 + is_odd) >> dropped;
  };
  const auto exponent = static_cast<int>(magnitude >> kFromFraction) - kFromBias + kBias;
  if (exponent >= (1 << kExponentBits) - 1) return with_sign(kNarrowInfinity);
  if (exponent > 0) {
    constexpr Bits kRebias = static_cast<Bits>(kFromBias - kBias) << kFromFraction;
    return with_sign(round(magnitude - kRebias, kDropped));
  }
  if constexpr (kFromBias == kBias) {
    return with_sign(round(magnitude, kDropped));  // The value is subnormal in both formats.
  } else {
    if (exponent < -kFraction) return sign;  // Less than half the smallest subnormal.
    constexpr Bits kHidden = Bits{1} << kFromFraction;
    return with_sign(round((magnitude & (kHidden - 1)) | kHidden, kDropped + 1 - exponent));
  }
}

// Returns an f64 that rounds to a narrower float as x does. If x has too many bits, the last kept
// bit is set to 1, which says that bits were dropped.
constexpr double round_to_odd(double x) { return x; }
template <std::integral T>
constexpr double round_to_odd(T x) {
  if constexpr (sizeof(T) < 8) {
    return x;
  } else {
    constexpr T kDropped = 0xfff;
    const bool is_small = x <= T{1} << 52 && (std::is_unsigned_v<T> || x >= -(T{1} << 52));
    if (is_small || (x & kDropped) == 0) return static_cast<double>(x);
    return static_cast<double>((x & ~kDropped) | T{1} << 11);
  }
}

struct Float16 {
  uint16_t bits;

  static constexpr Float16 from_f32(float x) { return {round_to_16_bits<5>(x)}; }
  static constexpr Float16 from_f64(double x) { return {round_to_16_bits<5>(x)}; }

  constexpr float to_f32() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
    }
    const uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
    return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
  }
};

struct BFloat16 {
  uint16_t bits;

  static constexpr BFloat16 from_f32(float x) { return {round_to_16_bits<8>(x)}; }
  static constexpr BFloat16 from_f64(double x) { return {round_to_16_bits<8>(x)}; }

  constexpr float to_f32() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The type in which kernels compute with elements of T.
template <typename T>
using Compute = std::conditional_t<kIsNarrow<T>, float, T>;

template <typename T>
constexpr Compute<T> widen(T x) {
  if constexpr (kIsNarrow<T>) {
    return x.to_f32();
  } else {
    return x;
  }
}

// Returns the nearest T, ties to even, with one rounding.
template <typename T, std::floating_point From>
constexpr T narrow(From x) {
  if constexpr (!kIsNarrow<T>) {
    return static_cast<T>(x);
  } else if constexpr (std::is_same_v<From, float>) {
    return T::from_f32(x);
  } else {
    return T::from_f64(x);
  }
}

}  // namespace bp::kernels
