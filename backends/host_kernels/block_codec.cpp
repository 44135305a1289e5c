// Each block is decoded by the steps of the format's definition, one rounding per step, so that
// every decoder of the format gives the same bits. No step may be contracted to a fused one.
//
// An encoder takes the scale from the element of the largest magnitude, or from the range, and
// rounds each quotient to the nearest code, in the same steps as the encoders of the format's
// authors; it stores the scale rounded to f16.
#include "backends/host_kernels/block_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "backends/host_kernels/kernels.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp::kernels {
namespace {

using Bytes = const std::byte*;

constexpr int kSmallBlock = 32;   // The elements of a block with one scale.
constexpr int kLargeBlock = 256;  // The elements of a block of blocks.
constexpr int64_t kGrainBlocks = 256;

// ---- Fields of a block --------------------------------------------------------------------------

uint32_t byte_at(Bytes bytes, int index) { return static_cast<uint32_t>(bytes[index]); }

float half_at(Bytes bytes) {
  Float16 half;
  std::memcpy(&half.bits, bytes, sizeof(half.bits));
  return half.to_f32();
}

uint32_t word_at(Bytes bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

float number(uint32_t code) { return static_cast<float>(static_cast<int32_t>(code)); }

// ---- Blocks with one scale ----------------------------------------------------------------------

// f16 d, [f16 m], [u32 fifth bits], 16 bytes of two codes: the low nibbles are the first half.
//
//   y = (code - 2^(bits - 1)) * d        or, with a minimum,        y = code * d + m
template <int kBits, bool kHasMinimum>
void decode_nibbles(Bytes block, float* y) {
  constexpr int kHalf = kSmallBlock / 2;
  const float d = half_at(block), m = kHasMinimum ? half_at(block + 2) : 0.0F;
  Bytes at = block + (kHasMinimum ? 4 : 2);
  const uint32_t fifth = kBits == 5 ? word_at(at) : 0;
  if (kBits == 5) at += 4;
  for (int i = 0; i < kHalf; ++i) {
    const uint32_t low = (byte_at(at, i) & 15) | (fifth >> i & 1) << 4;
    const uint32_t high = byte_at(at, i) >> 4 | (fifth >> (i + kHalf) & 1) << 4;
    if (kHasMinimum) {
      y[i] = number(low) * d + m;
      y[i + kHalf] = number(high) * d + m;
    } else {
      constexpr uint32_t kMiddle = 1u << (kBits - 1);
      y[i] = number(low - kMiddle) * d;
      y[i + kHalf] = number(high - kMiddle) * d;
    }
  }
}

// f16 d, 32 signed bytes.
void decode_q8_0(Bytes block, float* y) {
  const float d = half_at(block);
  for (int i = 0; i < kSmallBlock; ++i) {
    y[i] = static_cast<float>(static_cast<int8_t>(byte_at(block, 2 + i))) * d;
  }
}

// ---- Blocks of blocks ---------------------------------------------------------------------------

// 16 bytes of a scale and a minimum of 4 bits, 64 bytes of four codes, f16 d, f16 dmin.
void decode_q2_k(Bytes block, float* y) {
  Bytes codes = block + 16;
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int part = 0; part < kLargeBlock / 16; ++part) {
    const float scale = d * number(byte_at(block, part) & 15);
    const float minimum = dmin * number(byte_at(block, part) >> 4);
    Bytes const at = codes + ptrdiff_t{part / 8 * 32 + part % 2 * 16};
    const int shift = part % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) *y++ = scale * number(byte_at(at, i) >> shift & 3) - minimum;
  }
}

// 32 bytes of third bits, 64 bytes of four codes, 12 bytes of 16 scales of 6 bits, f16 d. A third
// bit of 0 takes 4 from the code.
void decode_q3_k(Bytes block, float* y) {
  Bytes codes = block + 32, scales = block + 96;
  const float d = half_at(block + 108);
  for (int part = 0; part < kLargeBlock / 16; ++part) {
    const uint32_t low = byte_at(scales, part % 8) >> (part / 8 * 4) & 15;
    const uint32_t high = byte_at(scales, 8 + part % 4) >> (part / 4 * 2) & 3;
    const float scale = d * number((low | high << 4) - 32);
    const int first = part % 2 * 16, plane = part / 2;
    Bytes const at = codes + ptrdiff_t{part / 8 * 32 + first};
    for (int i = 0; i < 16; ++i) {
      const uint32_t third = byte_at(block, first + i) >> plane & 1;
      *y++ = scale * number((byte_at(at, i) >> (plane % 4 * 2) & 3) - (third == 0 ? 4 : 0));
    }
  }
}

struct ScaleAndMinimum {
  uint32_t scale, minimum;
};

// Returns the 6-bit scale and minimum of one of 8 parts, which 12 bytes hold.
ScaleAndMinimum packed_scale(Bytes packed, int part) {
  if (part < 4) return {byte_at(packed, part) & 63, byte_at(packed, part + 4) & 63};
  const uint32_t nibbles = byte_at(packed, part + 4);
  return {(nibbles & 15) | byte_at(packed, part - 4) >> 6 << 4,
          nibbles >> 4 | byte_at(packed, part) >> 6 << 4};
}

// f16 d, f16 dmin, 12 bytes of scales and minima, [32 bytes of fifth bits], 128 bytes of two codes.
template <int kBits>
void decode_q45_k(Bytes block, float* y) {
  const float d = half_at(block), dmin = half_at(block + 2);
  Bytes const fifths = block + 16, codes = block + (kBits == 5 ? 48 : 16);
  for (int part = 0; part < kLargeBlock / 32; ++part) {
    const ScaleAndMinimum packed = packed_scale(block + 4, part);
    const float scale = d * number(packed.scale), minimum = dmin * number(packed.minimum);
    Bytes const at = codes + static_cast<ptrdiff_t>(part / 2 * 32);
    for (int i = 0; i < 32; ++i) {
      uint32_t code = byte_at(at, i) >> (part % 2 * 4) & 15;
      if (kBits == 5) code |= (byte_at(fifths, i) >> part & 1) << 4;
      *y++ = scale * number(code) - minimum;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of four high pairs of bits, 16 signed scales, f16 d.
void decode_q6_k(Bytes block, float* y) {
  const float d = half_at(block + 208);
  for (int part = 0; part < kLargeBlock / 16; ++part) {
    const int half = part / 8, quarter = part % 8 / 2, first = part % 2 * 16;
    Bytes const low = block + ptrdiff_t{half * 64 + quarter % 2 * 32 + first};
    Bytes const high = block + ptrdiff_t{128 + half * 32 + first};
    const float scale = d * static_cast<float>(static_cast<int8_t>(byte_at(block, 192 + part)));
    for (int i = 0; i < 16; ++i) {
      const uint32_t code = (byte_at(low, i) >> (quarter / 2 * 4) & 15) |
                            (byte_at(high, i) >> (quarter * 2) & 3) << 4;
      *y++ = scale * number(code - 32);
    }
  }
}

// ---- Encoders -----------------------------------------------------------------------------------

void put_half(float x, std::byte* to) {
  const Float16 half = Float16::from_f32(x);
  std::memcpy(to, &half.bits, sizeof(half.bits));
}

float inverse(float d) { return d == 0 ? 0 : 1 / d; }

// Returns x cut to an integer from 0 to `most`; NaN gives 0.
uint32_t cut(float x, uint32_t most) {
  if (!(x > 0)) return 0;
  return x < static_cast<float>(most) ? static_cast<uint32_t>(x) : most;
}

template <int kBits>
void put_nibbles(const uint32_t (&codes)[kSmallBlock], std::byte* at) {
  constexpr int kHalf = kSmallBlock / 2;
  if (kBits == 5) {
    uint32_t fifth = 0;
    for (int i = 0; i < kSmallBlock; ++i) fifth |= codes[i] >> 4 << i;
    std::memcpy(at, &fifth, sizeof(fifth));
    at += sizeof(fifth);
  }
  for (int i = 0; i < kHalf; ++i) {
    at[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + kHalf] & 15) << 4);
  }
}

// The element of the largest magnitude becomes the lowest code.
template <int kBits>
void encode_signed(const float* x, std::byte* block) {
  constexpr uint32_t kMiddle = 1u << (kBits - 1);
  const float* const extreme = std::max_element(
      x, x + kSmallBlock, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float d = *extreme / -static_cast<float>(kMiddle), inverted = inverse(d);
  uint32_t codes[kSmallBlock];
  for (int i = 0; i < kSmallBlock; ++i) {
    codes[i] = cut(x[i] * inverted + (kMiddle + 0.5F), 2 * kMiddle - 1);
  }
  put_half(d, block);
  put_nibbles<kBits>(codes, block + 2);
}

// The codes reach from the least element to the largest.
template <int kBits>
void encode_range(const float* x, std::byte* block) {
  constexpr uint32_t kMost = (1u << kBits) - 1;
  const auto [least, largest] = std::minmax_element(x, x + kSmallBlock);
  const float d = (*largest - *least) / static_cast<float>(kMost), inverted = inverse(d);
  uint32_t codes[kSmallBlock];
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = cut((x[i] - *least) * inverted + 0.5F, kMost);
  put_half(d, block);
  put_half(*least, block + 2);
  put_nibbles<kBits>(codes, block + 4);
}

// A quotient in the middle between two codes becomes the one farther from 0.
void encode_q8_0(const float* x, std::byte* block) {
  float most = 0;
  for (int i = 0; i < kSmallBlock; ++i) most = std::max(most, std::fabs(x[i]));
  const float d = most / 127, inverted = inverse(d);
  for (int i = 0; i < kSmallBlock; ++i) {
    const float quotient = x[i] * inverted;
    const auto magnitude = static_cast<int>(cut(std::round(std::fabs(quotient)), 127));
    block[2 + i] = static_cast<std::byte>(quotient < 0 ? -magnitude : magnitude);
  }
  put_half(d, block);
}

// ---- The formats --------------------------------------------------------------------------------

struct Codec {
  uint32_t number;
  DecodeBlock* decode;
  void (*encode)(const float* x, std::byte* block);  // NULL: the format is only decoded.
};
constexpr Codec kCodecs[] = {{2, decode_nibbles<4, false>, encode_signed<4>},
                             {3, decode_nibbles<4, true>, encode_range<4>},
                             {6, decode_nibbles<5, false>, encode_signed<5>},
                             {7, decode_nibbles<5, true>, encode_range<5>},
                             {8, decode_q8_0, encode_q8_0},
                             {10, decode_q2_k, nullptr},
                             {11, decode_q3_k, nullptr},
                             {12, decode_q45_k<4>, nullptr},
                             {13, decode_q45_k<5>, nullptr},
                             {14, decode_q6_k, nullptr}};

// NOLINTNEXTLINE(bugprone-macro-parentheses): the sum of all rows.
#define BP_BLOCK_FORMAT(id, number, ...) +1
static_assert(std::size(kCodecs) ==
#include "backplane/block_formats.def"
);

const Codec& codec_of(const BlockFormat& format) {
  return *std::ranges::find(kCodecs, format.number, &Codec::number);
}

}  // namespace

DecodeBlock* decoder_of(const BlockFormat& format) { return codec_of(format).decode; }

void decode_blocks(const BlockFormat& format, const std::byte* blocks, float* elements,
                   int64_t count, int thread_count) {
  DecodeBlock* const decode = decoder_of(format);
  parallel_for(thread_count, count / format.elements, kGrainBlocks,
               [&](int64_t begin, int64_t end) {
                 for (int64_t block = begin; block < end; ++block) {
                   decode(blocks + block * format.bytes, elements + block * format.elements);
                 }
               });
}

void check_encodes(const std::optional<LayoutForm>& dst, const std::optional<LayoutForm>& src) {
  if (!dst || dst->kind != BP_LAYOUT_KIND_QUANTIZED || dst == src) return;
  const BlockFormat& format = *find_block_format(dst->variant);
  if (codec_of(format).encode != nullptr) return;
  std::string names;
  for (const BlockFormat& each : block_formats()) {
    if (codec_of(each).encode != nullptr)
      names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  throw StatusError(BP_UNSUPPORTED, "layout.convert: dst: " + std::string(format.name) +
                                        " is decoded, and not encoded; encoded are " + names);
}

void encode_blocks(const BlockFormat& format, const float* elements, std::byte* blocks,
                   int64_t count, int thread_count) {
  const auto encode = codec_of(format).encode;
  parallel_for(thread_count, count / format.elements, kGrainBlocks,
               [&](int64_t begin, int64_t end) {
                 for (int64_t block = begin; block < end; ++block) {
                   encode(elements + block * format.elements, blocks + block * format.bytes);
                 }
               });
}

}  // namespace bp::kernels
