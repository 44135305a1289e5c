// The records that sort and topk order. A record has a key, which is an unsigned number in the
// order of the elements, and the index of the element. No two records are equal, so every sort of
// them is stable.
//
//   Packed  a key of up to 32 bits above an index of 32 bits, compared as one number
//   Wide    a key of 64 bits, and any index
//
// Nothing in this header is compiled per Highway target. The algorithms of the standard library are
// not either, and they can inline only functions that need no other instructions than they do.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "backplane/shell/narrow.hpp"

namespace bp::kernels {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

// The bits of infinity.
template <typename T>
constexpr BitsOf<T> kInfinityBits = 0;
template <>
inline constexpr uint16_t kInfinityBits<Float16> = 0x7c00;
template <>
inline constexpr uint16_t kInfinityBits<BFloat16> = 0x7f80;
template <>
inline constexpr uint32_t kInfinityBits<float> = 0x7f800000;
template <>
inline constexpr uint64_t kInfinityBits<double> = 0x7ff0000000000000;

// Returns the key of an element. Larger elements have larger keys, NaN has the largest key, and -0
// has the key of 0.
template <typename T>
constexpr BitsOf<T> key_of(T x) {
  using Bits = BitsOf<T>;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits bits = std::bit_cast<Bits>(x);
  if constexpr (std::is_integral_v<T>) {
    return bits ^ kSign;
  } else {
    const Bits magnitude = bits & static_cast<Bits>(~kSign);
    const Bits negative = static_cast<Bits>(kSign - magnitude);  // -0 gets the key of 0.
    const Bits positive = magnitude | kSign;
    const Bits key = (bits & kSign) != 0 ? negative : positive;
    return magnitude > kInfinityBits<T> ? static_cast<Bits>(~Bits{0}) : key;
  }
}

// Returns the integer that has a key.
template <typename T>
constexpr T integer_of(BitsOf<T> key) {
  return static_cast<T>(key ^ key_of(T{0}));
}

struct Packed {
  uint64_t bits;

  static constexpr Packed make(uint64_t key, int64_t index) {
    return {key << 32 | static_cast<uint64_t>(index)};
  }
  constexpr uint64_t key() const { return bits >> 32; }
  constexpr int64_t index() const { return static_cast<int64_t>(bits & 0xffffffff); }
  friend constexpr bool operator<(const Packed& a, const Packed& b) { return a.bits < b.bits; }
};

struct Wide {
  uint64_t its_key;
  int64_t its_index;

  static constexpr Wide make(uint64_t key, int64_t index) { return {key, index}; }
  constexpr uint64_t key() const { return its_key; }
  constexpr int64_t index() const { return its_index; }
  friend constexpr bool operator<(const Wide& a, const Wide& b) {
    return a.its_key < b.its_key || (a.its_key == b.its_key && a.its_index < b.its_index);
  }
};

// Sorts n records, which are in the order of their indices and have keys of kKeyBytes. Returns
// where the sorted records are, `a` or `b`. It sorts by the least significant byte first, and skips
// a byte that is the same in all keys.
template <int kKeyBytes, class Record>
Record* sort_records(Record* a, Record* b, int64_t n) {
  constexpr int64_t kFew = kKeyBytes <= 4 ? 64 : 256;
  if (n <= kFew) {
    std::sort(a, a + n);
    return a;
  }
  int64_t counts[kKeyBytes][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = a[i].key();
    for (int byte = 0; byte < kKeyBytes; ++byte) ++counts[byte][key >> (8 * byte) & 0xff];
  }
  for (int byte = 0; byte < kKeyBytes; ++byte) {
    int64_t* const next = counts[byte];
    if (next[a[0].key() >> (8 * byte) & 0xff] == n) continue;
    int64_t sum = 0;
    for (int value = 0; value < 256; ++value) sum += std::exchange(next[value], sum);
    for (int64_t i = 0; i < n; ++i) b[next[a[i].key() >> (8 * byte) & 0xff]++] = a[i];
    std::swap(a, b);
  }
  return a;
}

}  // namespace bp::kernels
