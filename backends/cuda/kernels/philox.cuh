// Philox4x32-10 (Salmon and others, 2011), and the numbers that are made from its words.
#pragma once

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

struct PhiloxBlock {
  // Returns word i. An index into the array would keep it in local memory.
  __host__ __device__ uint32_t word(uint32_t i) const {
    const uint32_t first = i % 2 == 0 ? words[0] : words[1];
    const uint32_t second = i % 2 == 0 ? words[2] : words[3];
    return i < 2 ? first : second;
  }

  uint32_t words[4];
};

// Returns block number `block` of (seed, offset).
__host__ __device__ __forceinline__ PhiloxBlock philox(uint64_t seed, uint64_t offset,
                                                       uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(offset), c3 = static_cast<uint32_t>(offset >> 32);
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  BP_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c0, product1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// These functions return uniform numbers in [0, 1), with as many bits as the fraction of the type
// and its hidden bit.
__host__ __device__ __forceinline__ float uniform_f32(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}
__host__ __device__ __forceinline__ double uniform_f64(uint32_t low, uint32_t high) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}
template <typename T>
__host__ __device__ __forceinline__ T uniform(uint32_t word) {
  if constexpr (std::is_same_v<T, Float16>) {
    return narrow<T>(static_cast<float>(word >> 21) * 0x1p-11f);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return narrow<T>(static_cast<float>(word >> 24) * 0x1p-8f);
  } else {
    return uniform_f32(word);
  }
}

// Makes two standard normal numbers from two uniform ones (Box and Muller, 1958). Sines and cosines
// of multiples of pi need no reduction of the angle.
template <typename C>
struct NormalPair {
  C first, second;
};
template <typename C>
__host__ __device__ __forceinline__ NormalPair<C> normal_pair(C u1, C u2) {
  const C radius = sqrt(C{-2} * log(C{1} - u1));
  // The angle is counted in quarter turns, and the nearest whole number of them is subtracted
  // exactly.
  const C turns = u2 * C{4}, whole = rint(turns);
  const C angle = (turns - whole) * C(1.57079632679489661923);
  const C s = sin(angle), c = cos(angle);
  switch (static_cast<int>(whole) & 3) {
    case 0:
      return {radius * c, radius * s};
    case 1:
      return {radius * -s, radius * c};
    case 2:
      return {radius * -c, radius * -s};
    default:
      return {radius * s, radius * -c};
  }
}

}  // namespace bp::cuda
