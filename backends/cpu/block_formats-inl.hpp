// The formats of blocks in vectors: how the elements of a block come out of its bytes.
//
// load() of a format reads the scales of blocks that are used beside each other, one of each
// stream. for_each_vector() calls fn(first element, elements) for each vector of the block of one
// stream. Each element has the bits that decoding gives.
#if defined(BACKPLANE_CPU_BLOCK_FORMATS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_BLOCK_FORMATS_INL_HPP
#undef BACKPLANE_CPU_BLOCK_FORMATS_INL_HPP
#else
#define BACKPLANE_CPU_BLOCK_FORMATS_INL_HPP
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include "backends/host_kernels/lanes-inl.hpp"
#include "backplane/shell/narrow.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a block has whole vectors.
using Floats = hn::CappedTag<float, 16>;
using Integers = hn::Rebind<int32_t, Floats>;
using Codes = hn::Rebind<uint8_t, Floats>;
using SignedCodes = hn::Rebind<int8_t, Floats>;

constexpr int64_t kMostStreams = 4;  // The columns that are read beside each other.

HWY_INLINE int64_t lane_count() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// Writes the f16 at a place of each block.
template <int64_t kStreams>
HWY_INLINE void load_halves(const uint8_t* const* blocks, int64_t place,
                            float (&values)[kMostStreams]) {
  namespace lanes = kernels::HWY_NAMESPACE;
  uint16_t halves[kMostStreams] = {};
  for (int64_t i = 0; i < kStreams; ++i) std::memcpy(&halves[i], blocks[i] + place, 2);
  if constexpr (lanes::kHasFloat16) {
    const hn::CappedTag<float, kMostStreams> tag;
    const hn::Rebind<hwy::float16_t, decltype(tag)> narrow_tag;
    uint64_t together = 0;  // Written and read as a whole, since parts would be read late.
    for (int64_t i = 0; i < kStreams; ++i) together |= uint64_t{halves[i]} << (16 * i);
    const auto bits = hn::Set(hn::CappedTag<uint64_t, 1>(), together);
    hn::Store(hn::PromoteTo(tag, hn::BitCast(narrow_tag, bits)), tag, values);
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
    // The values stay in memory, from which a load fills a vector with one of them. Out of a
    // register, gcc moves each by two shuffles, and a product takes up to an eighth longer.
    asm volatile("" : : "r"(values) : "memory");
#endif
  } else {
    for (int64_t i = 0; i < kStreams; ++i) values[i] = kernels::Float16{halves[i]}.to_f32();
  }
}

// Writes the products of some bytes with a factor.
template <typename Byte>
HWY_INLINE void scale_bytes(const uint8_t* bytes, int64_t count, float factor, float* products) {
  const auto* const codes = reinterpret_cast<const Byte*>(bytes);
  const hn::CappedTag<float, 8> tag;
  const hn::Rebind<int32_t, decltype(tag)> integers;
  const hn::Rebind<Byte, decltype(tag)> narrow;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(tag))) {
    const auto numbers = hn::ConvertTo(tag, hn::PromoteTo(integers, hn::LoadU(narrow, codes + i)));
    hn::Store(hn::Mul(numbers, hn::Set(tag, factor)), tag, products + i);
  }
}

HWY_INLINE hn::Vec<Integers> integers(int32_t value) { return hn::Set(Integers(), value); }

HWY_INLINE hn::Vec<Integers> bytes_at(const uint8_t* bytes) {
  return hn::PromoteTo(Integers(), hn::LoadU(Codes(), bytes));
}

HWY_INLINE hn::Vec<Integers> low_nibbles(hn::Vec<Integers> bytes) {
  return hn::And(bytes, integers(15));
}
HWY_INLINE hn::Vec<Integers> high_nibbles(hn::Vec<Integers> bytes) {
  return hn::ShiftRight<4>(bytes);
}

// Moves each number to the left by kBits bits, or to the right by -kBits.
template <int kBits>
HWY_INLINE hn::Vec<Integers> moved(hn::Vec<Integers> numbers) {
  if constexpr (kBits > 0) return hn::ShiftLeft<kBits>(numbers);
  if constexpr (kBits < 0) return hn::ShiftRight<-kBits>(numbers);
  return numbers;
}

// Returns codes * scale, and codes * scale + m. The product of a code and a scale has no more bits
// than an f32.
HWY_INLINE hn::Vec<Floats> scaled(hn::Vec<Integers> codes, float scale) {
  return hn::Mul(hn::ConvertTo(Floats(), codes), hn::Set(Floats(), scale));
}
HWY_INLINE hn::Vec<Floats> scaled(hn::Vec<Integers> codes, float scale, float m) {
  return hn::MulAdd(hn::ConvertTo(Floats(), codes), hn::Set(Floats(), scale), hn::Set(Floats(), m));
}

// ---- Formats ------------------------------------------------------------------------------------

// ggml.q8_0: f16 d, 32 signed bytes.
struct SignedBytes {
  static constexpr int64_t kElements = 32, kBytes = 34;

  struct Scales {
    HWY_ALIGN float d[kMostStreams];

    template <int64_t kStreams>
    HWY_INLINE void load(const uint8_t* const* blocks) {
      load_halves<kStreams>(blocks, 0, d);
    }
  };

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Scales& scales, int64_t stream,
                                         const Fn& fn) {
    const auto* const codes = reinterpret_cast<const int8_t*>(block + 2);
    for (int64_t i = 0; i < kElements; i += lane_count()) {
      fn(i,
         scaled(hn::PromoteTo(Integers(), hn::LoadU(SignedCodes(), codes + i)), scales.d[stream]));
    }
  }
};

// ggml.q4_0, q4_1, q5_0 and q5_1: f16 d, [f16 m], [u32 fifth bits], 16 bytes of two codes, whose
// low nibbles are the first half.
template <int kBits, bool kHasMinimum>
struct Nibbles {
  static constexpr int64_t kFifths = kHasMinimum ? 4 : 2, kCodes = kFifths + (kBits == 5 ? 4 : 0);
  static constexpr int64_t kElements = 32, kBytes = kCodes + 16;

  struct Scales {
    HWY_ALIGN float d[kMostStreams];
    HWY_ALIGN float m[kMostStreams];

    template <int64_t kStreams>
    HWY_INLINE void load(const uint8_t* const* blocks) {
      load_halves<kStreams>(blocks, 0, d);
      if (kHasMinimum) load_halves<kStreams>(blocks, 2, m);
    }
  };

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Scales& scales, int64_t stream,
                                         const Fn& fn) {
    uint32_t fifths = 0;
    if (kBits == 5) std::memcpy(&fifths, block + kFifths, sizeof(fifths));
    for (int64_t i = 0; i < kElements / 2; i += lane_count()) {
      const auto bytes = bytes_at(block + kCodes + i);
      const int64_t second = i + kElements / 2;
      fn(i, elements(low_nibbles(bytes), fifths, i, scales, stream));
      fn(second, elements(high_nibbles(bytes), fifths, second, scales, stream));
    }
  }

 private:
  // Bit i of element i.
  static constexpr std::array<uint32_t, kElements> kPlaces = [] {
    std::array<uint32_t, kElements> places{};
    for (size_t i = 0; i < places.size(); ++i) places[i] = uint32_t{1} << i;
    return places;
  }();

  static HWY_INLINE hn::Vec<Floats> elements(hn::Vec<Integers> codes, uint32_t fifths,
                                             int64_t first, const Scales& scales, int64_t stream) {
    if (kBits == 5) codes = with_fifths(codes, fifths, first);
    if (kHasMinimum) return scaled(codes, scales.d[stream], scales.m[stream]);
    if (kBits == 4) codes = hn::Sub(codes, integers(8));
    return scaled(codes, scales.d[stream]);
  }

  // Adds 16 where the fifth bit is set. Codes with a sign are 16 less.
  static HWY_INLINE hn::Vec<Integers> with_fifths(hn::Vec<Integers> codes, uint32_t fifths,
                                                  int64_t first) {
    const hn::RebindToUnsigned<Integers> words;
    const auto places = hn::LoadU(words, kPlaces.data() + first);
    const auto is_set = hn::RebindMask(Integers(), hn::TestBit(hn::Set(words, fifths), places));
    if (!kHasMinimum) codes = hn::Sub(codes, integers(16));
    return hn::IfThenElse(is_set, hn::Add(codes, integers(16)), codes);
  }
};

// ggml.q4_k and q5_k: f16 d, f16 dmin, 12 bytes of scales and minima of 6 bits, [32 bytes of fifth
// bits], 128 bytes of two codes. 32 elements share a scale and a minimum.
template <int kBits>
struct NibblesOfParts {
  static constexpr int64_t kFifths = 16, kCodes = kFifths + (kBits == 5 ? 32 : 0);
  static constexpr int64_t kElements = 256, kBytes = kCodes + 128, kParts = 8;

  struct Scales {
    HWY_ALIGN float factors[kMostStreams][kParts];
    HWY_ALIGN float minima[kMostStreams][kParts];  // With the sign with which they are added.

    template <int64_t kStreams>
    HWY_INLINE void load(const uint8_t* const* blocks) {
      HWY_ALIGN float d[kMostStreams];
      HWY_ALIGN float dmin[kMostStreams];
      load_halves<kStreams>(blocks, 0, d);
      load_halves<kStreams>(blocks, 2, dmin);
      for (int64_t i = 0; i < kStreams; ++i) {
        unpack(blocks[i] + 4, d[i], dmin[i], factors[i], minima[i]);
      }
    }

   private:
    // Bytes 0 to 3 have the scales of the first parts, bytes 4 to 7 their minima. The upper two
    // bits of these bytes, with the nibbles of bytes 8 to 11, are those of the last parts.
    static HWY_INLINE void unpack(const uint8_t* packed, float d, float dmin, float* factors,
                                  float* minima) {
      constexpr uint32_t kSix = 0x3f3f3f3f, kUpper = 0x30303030, kNibbles = 0x0f0f0f0f;
      uint32_t words[3];
      std::memcpy(words, packed, sizeof(words));
      const uint32_t scales[2] = {words[0] & kSix,
                                  (words[2] & kNibbles) | (words[0] >> 2 & kUpper)};
      const uint32_t mins[2] = {words[1] & kSix,
                                (words[2] >> 4 & kNibbles) | (words[1] >> 2 & kUpper)};
      uint8_t bytes[2][kParts];
      std::memcpy(bytes[0], scales, kParts);
      std::memcpy(bytes[1], mins, kParts);
      scale_bytes<uint8_t>(bytes[0], kParts, d, factors);
      scale_bytes<uint8_t>(bytes[1], kParts, -dmin, minima);
    }
  };

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Scales& scales, int64_t stream,
                                         const Fn& fn) {
    add_pair<0>(block, scales, stream, fn), add_pair<1>(block, scales, stream, fn);
    add_pair<2>(block, scales, stream, fn), add_pair<3>(block, scales, stream, fn);
  }

 private:
  // 64 elements, whose codes are the low, then the high nibbles of 32 bytes.
  template <int kPair, typename Fn>
  static HWY_INLINE void add_pair(const uint8_t* block, const Scales& scales, int64_t stream,
                                  const Fn& fn) {
    constexpr int64_t kFirst = int64_t{64} * kPair;
    const float* const factors = scales.factors[stream] + 2 * kPair;
    const float* const minima = scales.minima[stream] + 2 * kPair;
    for (int64_t i = 0; i < 32; i += lane_count()) {
      const auto bytes = bytes_at(block + kCodes + kFirst / 2 + i);
      auto low = low_nibbles(bytes), high = high_nibbles(bytes);
      if (kBits == 5) {
        const auto fifths = bytes_at(block + kFifths + i);
        low = hn::OrAnd(low, moved<4 - 2 * kPair>(fifths), integers(16));
        high = hn::OrAnd(high, moved<3 - 2 * kPair>(fifths), integers(16));
      }
      fn(kFirst + i, scaled(low, factors[0], minima[0]));
      fn(kFirst + 32 + i, scaled(high, factors[1], minima[1]));
    }
  }
};

// ggml.q6_k: 128 bytes of two low nibbles, 64 bytes of four pairs of upper bits, 16 signed scales,
// f16 d. 16 elements share a scale.
struct SixBits {
  static constexpr int64_t kElements = 256, kBytes = 210, kParts = 16;

  struct Scales {
    HWY_ALIGN float factors[kMostStreams][kParts];

    template <int64_t kStreams>
    HWY_INLINE void load(const uint8_t* const* blocks) {
      HWY_ALIGN float d[kMostStreams];
      load_halves<kStreams>(blocks, 208, d);
      for (int64_t i = 0; i < kStreams; ++i) {
        scale_bytes<int8_t>(blocks[i] + 192, kParts, d[i], factors[i]);
      }
    }
  };

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Scales& scales, int64_t stream,
                                         const Fn& fn) {
    for (int64_t half = 0; half < 2; ++half) {
      const float* const factors = scales.factors[stream] + 8 * half;
      const auto with_place = [&](int64_t i, hn::Vec<Integers> codes) HWY_ATTR {
        codes = hn::Sub(codes, integers(32));
        fn(128 * half + i, scaled(codes, factors[i / 16]));
      };
      add_half(block + 64 * half, block + 128 + 32 * half, with_place);
    }
  }

 private:
  // 128 codes: the low, then the high nibbles of 64 bytes, with pairs of bits of 32 bytes.
  template <typename Fn>
  static HWY_INLINE void add_half(const uint8_t* low, const uint8_t* high, const Fn& fn) {
    for (int64_t i = 0; i < 32; i += lane_count()) {
      const auto first = bytes_at(low + i), second = bytes_at(low + 32 + i);
      const auto pairs = bytes_at(high + i);
      fn(i, hn::OrAnd(low_nibbles(first), moved<4>(pairs), integers(48)));
      fn(32 + i, hn::OrAnd(low_nibbles(second), moved<2>(pairs), integers(48)));
      fn(64 + i, hn::OrAnd(high_nibbles(first), pairs, integers(48)));
      fn(96 + i, hn::OrAnd(high_nibbles(second), moved<-2>(pairs), integers(48)));
    }
  }
};

}  // namespace bp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_BLOCK_FORMATS_INL_HPP
