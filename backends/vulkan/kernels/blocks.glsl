// The blocks of backplane/block_formats.def, decoded to f32 with one rounding per operation, so that
// every decoder gives the same bits. api/docs/layouts.md draws the formats. A format is a
// specialisation constant, the number of its row in the table.
const uint kQ4_0 = 2u, kQ4_1 = 3u, kQ5_0 = 6u, kQ5_1 = 7u, kQ8_0 = 8u;
const uint kQ2_K = 10u, kQ3_K = 11u, kQ4_K = 12u, kQ5_K = 13u, kQ6_K = 14u;

struct BlockSize {
  uint elements, bytes;
};

BlockSize size_of_block(uint format) {
  if (format == kQ4_0) return BlockSize(32u, 18u);
  if (format == kQ4_1) return BlockSize(32u, 20u);
  if (format == kQ5_0) return BlockSize(32u, 22u);
  if (format == kQ5_1) return BlockSize(32u, 24u);
  if (format == kQ8_0) return BlockSize(32u, 34u);
  if (format == kQ2_K) return BlockSize(256u, 84u);
  if (format == kQ3_K) return BlockSize(256u, 110u);
  if (format == kQ4_K) return BlockSize(256u, 144u);
  if (format == kQ5_K) return BlockSize(256u, 176u);
  return BlockSize(256u, 210u);
}

// ---- Fields of a block --------------------------------------------------------------------------

uint byte_at(uint64_t block, uint i) { return uint(Bytes1(block + uint64_t(i)).value); }
int signed_byte_at(uint64_t block, uint i) { return int(byte_at(block, i) << 24) >> 24; }
float half_at(uint64_t block, uint i) {
  return f16_to_f32(uint(Bytes2(block + uint64_t(i)).value));
}

// Returns the four bits `high` (1) or low (0) of a byte, and two bits from bit `shift` on.
uint nibble_at(uint64_t block, uint i, uint high) { return byte_at(block, i) >> (4u * high) & 15u; }
uint pair_at(uint64_t block, uint i, uint shift) { return byte_at(block, i) >> shift & 3u; }
uint bit_at(uint64_t block, uint i, uint shift) { return byte_at(block, i) >> shift & 1u; }

// ---- Blocks with one scale ----------------------------------------------------------------------

// Two codes of four bits are in a byte, the first half of the block in the low bits. A fifth bit
// lies in front of the codes.
float nibble_number(uint format, uint64_t block, uint i) {
  const bool has_minimum = format == kQ4_1 || format == kQ5_1;
  const bool has_fifth = format == kQ5_0 || format == kQ5_1;
  const uint fields = has_minimum ? 4u : 2u;
  uint code = nibble_at(block, fields + (has_fifth ? 4u : 0u) + i % 16u, i / 16u);
  if (has_fifth) code |= bit_at(block, fields + i / 8u, i % 8u) << 4;
  const float d = half_at(block, 0u);
  precise float number;
  if (has_minimum) {
    number = float(code) * d;
    number += half_at(block, 2u);
  } else {
    number = float(int(code) - (has_fifth ? 16 : 8)) * d;
  }
  return number;
}

// ---- Blocks of blocks ---------------------------------------------------------------------------

// Returns d * scale * code - dmin * minimum.
float offset_number(float d, float dmin, uint scale, uint minimum, uint code) {
  precise const float scaled = (d * float(scale)) * float(code);
  precise const float lowest = dmin * float(minimum);
  precise const float number = scaled - lowest;
  return number;
}

float q2_k_number(uint64_t block, uint i) {
  const uint both = byte_at(block, i / 16u);
  const uint code = pair_at(block, 16u + i / 128u * 32u + i % 32u, i % 128u / 32u * 2u);
  return offset_number(half_at(block, 80u), half_at(block, 82u), both & 15u, both >> 4, code);
}

float q3_k_number(uint64_t block, uint i) {
  const uint p = i / 16u, l = i % 32u;
  const uint scale = nibble_at(block, 96u + p % 8u, p / 8u) |
                     pair_at(block, 104u + p % 4u, p / 4u * 2u) << 4;
  const uint code = pair_at(block, 32u + i / 128u * 32u + l, i % 128u / 32u * 2u);
  const int third = int(bit_at(block, l, i / 32u));
  precise const float number = (half_at(block, 108u) * float(int(scale) - 32)) *
                               float(int(code) + 4 * third - 4);
  return number;
}

float q45_k_number(uint format, uint64_t block, uint i) {
  const uint p = i / 32u, l = i % 32u;
  uint scale, minimum;
  if (p < 4u) {
    scale = byte_at(block, 4u + p) & 63u;
    minimum = byte_at(block, 8u + p) & 63u;
  } else {
    const uint nibbles = byte_at(block, 8u + p);
    scale = (nibbles & 15u) | byte_at(block, p) >> 6 << 4;
    minimum = nibbles >> 4 | byte_at(block, 4u + p) >> 6 << 4;
  }
  const uint codes = format == kQ5_K ? 48u : 16u;
  uint code = nibble_at(block, codes + p / 2u * 32u + l, p % 2u);
  if (format == kQ5_K) code |= bit_at(block, 16u + l, p) << 4;
  return offset_number(half_at(block, 0u), half_at(block, 2u), scale, minimum, code);
}

float q6_k_number(uint64_t block, uint i) {
  const uint g = i / 128u, k = i % 128u / 32u, l = i % 32u;
  const uint code = nibble_at(block, 64u * g + 32u * (k % 2u) + l, k / 2u) |
                    pair_at(block, 128u + 32u * g + l, 2u * k) << 4;
  const float scale = float(signed_byte_at(block, 192u + i / 16u));
  precise const float number = (half_at(block, 208u) * scale) * float(int(code) - 32);
  return number;
}

// Returns element i of the block at an address.
float number_in_block(uint format, uint64_t block, uint i) {
  if (format == kQ8_0) {
    precise const float number = float(signed_byte_at(block, 2u + i)) * half_at(block, 0u);
    return number;
  }
  if (format == kQ2_K) return q2_k_number(block, i);
  if (format == kQ3_K) return q3_k_number(block, i);
  if (format == kQ4_K || format == kQ5_K) return q45_k_number(format, block, i);
  if (format == kQ6_K) return q6_k_number(block, i);
  return nibble_number(format, block, i);
}

// Returns element i of the blocks that follow each other from an address on.
float number_in_blocks(uint format, uint64_t blocks, uint64_t i) {
  const BlockSize size = size_of_block(format);
  const uint64_t number = i / uint64_t(size.elements);
  return number_in_block(format, blocks + number * uint64_t(size.bytes),
                         uint(i) & (size.elements - 1u));
}
