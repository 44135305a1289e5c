// Philox4x32-10 (Salmon and others, 2011), and the uniform numbers of its words.
//
// Block b of (seed, offset) has the counter (b low, b high, offset low, offset high) and the key
// (seed low, seed high), and gives four words. Element i of a tensor takes word i % 4 of block i
// / 4.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_PHILOX_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_PHILOX_INL_HPP
#undef BACKPLANE_CPU_PHILOX_INL_HPP
#else
#define BACKPLANE_CPU_PHILOX_INL_HPP
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// Returns the high half of a product.
HWY_INLINE uint32_t high_of(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}

// Sets words[4 * k + w] to word w of block first + k. The compiler vectorizes the loop over k.
template <size_t kBlocks>
void random_blocks(uint64_t seed, uint64_t offset, uint64_t first, uint32_t* HWY_RESTRICT words) {
  std::array<uint32_t, kBlocks> c0, c1, c2, c3;
  for (size_t k = 0; k < kBlocks; ++k) {
    c0[k] = static_cast<uint32_t>(first + k);
    c1[k] = static_cast<uint32_t>((first + k) >> 32);
    c2[k] = static_cast<uint32_t>(offset);
    c3[k] = static_cast<uint32_t>(offset >> 32);
  }
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    for (size_t k = 0; k < kBlocks; ++k) {
      const uint32_t high0 = high_of(0xD2511F53u, c0[k]), low0 = 0xD2511F53u * c0[k];
      const uint32_t high1 = high_of(0xCD9E8D57u, c2[k]), low1 = 0xCD9E8D57u * c2[k];
      c0[k] = high1 ^ c1[k] ^ key0;
      c1[k] = low1;
      c2[k] = high0 ^ c3[k] ^ key1;
      c3[k] = low0;
    }
  }
  for (size_t k = 0; k < kBlocks; ++k) {
    words[k * 4] = c0[k];
    words[k * 4 + 1] = c1[k];
    words[k * 4 + 2] = c2[k];
    words[k * 4 + 3] = c3[k];
  }
}

HWY_INLINE float uniform_f32(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_PHILOX_INL_HPP
