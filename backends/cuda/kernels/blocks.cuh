// The blocks of backplane/block_formats.def, decoded to f32 with one rounding per operation, so
// that every decoder gives the same bits. api/docs/layouts.md draws the formats. A format is the
// number of its row in the table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernels/device.cuh"

namespace bp::cuda {

enum BlockNumber : uint32_t {
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
};

struct BlockSize {
  uint32_t elements_log2, bytes;
};

__host__ __device__ __forceinline__ BlockSize size_of_block(uint32_t format) {
  switch (format) {
    case kQ4_0:
      return {5, 18};
    case kQ4_1:
      return {5, 20};
    case kQ5_0:
      return {5, 22};
    case kQ5_1:
      return {5, 24};
    case kQ8_0:
      return {5, 34};
    case kQ2_K:
      return {8, 84};
    case kQ3_K:
      return {8, 110};
    case kQ4_K:
      return {8, 144};
    case kQ5_K:
      return {8, 176};
    default:
      return {8, 210};
  }
}

// Returns a - b, rounded. The compiler cannot fuse it with a product.
__host__ __device__ __forceinline__ float difference_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

// ---- Fields of a block --------------------------------------------------------------------------

__host__ __device__ __forceinline__ uint32_t byte_at(const std::byte* block, uint32_t i) {
  return static_cast<uint32_t>(block[i]);
}
__host__ __device__ __forceinline__ float signed_byte_at(const std::byte* block, uint32_t i) {
  return static_cast<float>(static_cast<int8_t>(block[i]));
}
// Blocks and all their halves begin at even addresses.
__host__ __device__ __forceinline__ float half_at(const std::byte* block, uint32_t i) {
  return widen(*reinterpret_cast<const Float16*>(block + i));
}

// Returns the four bits `high` (1) or low (0) of a byte, and two or one bits from bit `shift` on.
__host__ __device__ __forceinline__ uint32_t nibble_at(const std::byte* block, uint32_t i,
                                                       uint32_t high) {
  return byte_at(block, i) >> (4 * high) & 15u;
}
__host__ __device__ __forceinline__ uint32_t pair_at(const std::byte* block, uint32_t i,
                                                     uint32_t shift) {
  return byte_at(block, i) >> shift & 3u;
}
__host__ __device__ __forceinline__ uint32_t bit_at(const std::byte* block, uint32_t i,
                                                    uint32_t shift) {
  return byte_at(block, i) >> shift & 1u;
}

// ---- Blocks with one scale ----------------------------------------------------------------------

// Two codes of four bits are in a byte, the first half of the block in the low bits. A fifth bit
// lies in front of the codes.
__host__ __device__ __forceinline__ float nibble_number(uint32_t format, const std::byte* block,
                                                        uint32_t i) {
  const bool has_minimum = format == kQ4_1 || format == kQ5_1;
  const bool has_fifth = format == kQ5_0 || format == kQ5_1;
  const uint32_t fields = has_minimum ? 4 : 2;
  uint32_t code = nibble_at(block, fields + (has_fifth ? 4u : 0u) + i % 16, i / 16);
  if (has_fifth) code |= bit_at(block, fields + i / 8, i % 8) << 4;
  const float d = half_at(block, 0);
  if (has_minimum) {
    return difference_of(product_of(static_cast<float>(code), d), -half_at(block, 2));
  }
  return product_of(static_cast<float>(static_cast<int>(code) - (has_fifth ? 16 : 8)), d);
}

// ---- Blocks of blocks ---------------------------------------------------------------------------

// Returns d * scale * code - dmin * minimum.
__host__ __device__ __forceinline__ float offset_number(float d, float dmin, uint32_t scale,
                                                        uint32_t minimum, uint32_t code) {
  const float scaled =
      product_of(product_of(d, static_cast<float>(scale)), static_cast<float>(code));
  return difference_of(scaled, product_of(dmin, static_cast<float>(minimum)));
}

__host__ __device__ __forceinline__ float q2_k_number(const std::byte* block, uint32_t i) {
  const uint32_t both = byte_at(block, i / 16);
  const uint32_t code = pair_at(block, 16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2);
  return offset_number(half_at(block, 80), half_at(block, 82), both & 15u, both >> 4, code);
}

__host__ __device__ __forceinline__ float q3_k_number(const std::byte* block, uint32_t i) {
  const uint32_t part = i / 16, column = i % 32;
  const uint32_t scale =
      nibble_at(block, 96 + part % 8, part / 8) | pair_at(block, 104 + part % 4, part / 4 * 2) << 4;
  const uint32_t code = pair_at(block, 32 + i / 128 * 32 + column, i % 128 / 32 * 2);
  const auto third = static_cast<int>(bit_at(block, column, i / 32));
  return product_of(
      product_of(half_at(block, 108), static_cast<float>(static_cast<int>(scale) - 32)),
      static_cast<float>(static_cast<int>(code) + 4 * third - 4));
}

__host__ __device__ __forceinline__ float q45_k_number(uint32_t format, const std::byte* block,
                                                       uint32_t i) {
  const uint32_t part = i / 32, column = i % 32;
  uint32_t scale, minimum;
  if (part < 4) {
    scale = byte_at(block, 4 + part) & 63u;
    minimum = byte_at(block, 8 + part) & 63u;
  } else {
    const uint32_t nibbles = byte_at(block, 8 + part);
    scale = (nibbles & 15u) | byte_at(block, part) >> 6 << 4;
    minimum = nibbles >> 4 | byte_at(block, 4 + part) >> 6 << 4;
  }
  const uint32_t codes = format == kQ5_K ? 48 : 16;
  uint32_t code = nibble_at(block, codes + part / 2 * 32 + column, part % 2);
  if (format == kQ5_K) code |= bit_at(block, 16 + column, part) << 4;
  return offset_number(half_at(block, 0), half_at(block, 2), scale, minimum, code);
}

__host__ __device__ __forceinline__ float q6_k_number(const std::byte* block, uint32_t i) {
  const uint32_t half = i / 128, quarter = i % 128 / 32, column = i % 32;
  const uint32_t code = nibble_at(block, 64 * half + 32 * (quarter % 2) + column, quarter / 2) |
                        pair_at(block, 128 + 32 * half + column, 2 * quarter) << 4;
  const float scale = signed_byte_at(block, 192 + i / 16);
  return product_of(product_of(half_at(block, 208), scale),
                    static_cast<float>(static_cast<int>(code) - 32));
}

// ---- Numbers ------------------------------------------------------------------------------------

// Returns element i of a block.
__host__ __device__ __forceinline__ float number_in_block(uint32_t format, const std::byte* block,
                                                          uint32_t i) {
  switch (format) {
    case kQ8_0:
      return product_of(signed_byte_at(block, 2 + i), half_at(block, 0));
    case kQ2_K:
      return q2_k_number(block, i);
    case kQ3_K:
      return q3_k_number(block, i);
    case kQ4_K:
    case kQ5_K:
      return q45_k_number(format, block, i);
    case kQ6_K:
      return q6_k_number(block, i);
    default:
      return nibble_number(format, block, i);
  }
}

// Returns element i of the blocks that follow each other from an address on.
__host__ __device__ __forceinline__ float number_in_blocks(uint32_t format, const std::byte* blocks,
                                                           int64_t i) {
  const BlockSize size = size_of_block(format);
  const int64_t number = i >> size.elements_log2;
  return number_in_block(format, blocks + number * size.bytes,
                         static_cast<uint32_t>(i) & ((1u << size.elements_log2) - 1u));
}

}  // namespace bp::cuda
