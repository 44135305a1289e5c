// The keys by which elements are sorted: unsigned numbers in the order of the elements. NaN is
// larger than every number, and -0 equals 0.
#pragma once

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

// A key has as many bits as the element.
template <typename T>
using KeyOf =
    std::conditional_t<sizeof(T) == 1, uint8_t,
                       std::conditional_t<sizeof(T) == 2, uint16_t,
                                          std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <typename T>
inline constexpr bool kIsReal = std::is_floating_point_v<T> || kIsNarrow<T>;

template <typename Key>
inline constexpr Key kTopBit = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
template <typename Key>
inline constexpr Key kLastKey = static_cast<Key>(~Key{0});

template <typename T>
__host__ __device__ __forceinline__ KeyOf<T> key_of(T x) {
  using Key = KeyOf<T>;
  if constexpr (kIsReal<T>) {
    const Compute<T> value = widen(x);
    if (is_nan(value)) return kLastKey<Key>;
    const Key bits = value == 0 ? Key{0} : bits_as<Key>(x);
    return static_cast<Key>((bits & kTopBit<Key>) != 0 ? ~bits : bits | kTopBit<Key>);
  } else {
    return static_cast<Key>(std::is_signed_v<T> ? static_cast<Key>(x) ^ kTopBit<Key>
                                                : static_cast<Key>(x));
  }
}

// Returns whether elements with different bits have this key: they are zeros, or NaN.
template <typename T>
__host__ __device__ __forceinline__ bool is_shared_key(KeyOf<T> key) {
  return kIsReal<T> && (key == kTopBit<KeyOf<T>> || key == kLastKey<KeyOf<T>>);
}

// Returns the element of a key that only one element has.
template <typename T>
__host__ __device__ __forceinline__ T element_of(KeyOf<T> key) {
  using Key = KeyOf<T>;
  if constexpr (kIsReal<T>) {
    const bool is_negative = (key & kTopBit<Key>) == 0;
    return bits_as<T>(static_cast<Key>(is_negative ? ~key : key ^ kTopBit<Key>));
  } else {
    return static_cast<T>(
        static_cast<Key>(std::is_signed_v<T> ? key ^ kTopBit<Key> : uint64_t{key}));
  }
}

}  // namespace bp::cuda
