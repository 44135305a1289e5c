// Each element has the bits that decoding gives. The product of a scale with a sum of codes and x
// would take less, but the sum may overflow where the result does not, and the product of a minimum
// with a sum of x would lose the digits of elements that lie near 0.
//
// The blocks are asked for before they are used. On a virtual machine whose memory the processor
// reads ahead badly (a Sapphire Rapids), a row of q5_0 takes less than half of the time with it.
#include "backends/cpu/block_dot.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "backplane/shell/narrow.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/block_dot.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a block has whole vectors.
using Floats = hn::CappedTag<float, 16>;
using Integers = hn::Rebind<int32_t, Floats>;
using Codes = hn::Rebind<uint8_t, Floats>;
using SignedCodes = hn::Rebind<int8_t, Floats>;

// Returns an f16 of the 4 that begin at an address.
template <int kIndex>
HWY_INLINE float half_of_four_at(const uint8_t* bytes) {
  namespace lanes = kernels::HWY_NAMESPACE;
  if constexpr (lanes::kHasFloat16) {
    const auto* const halves = reinterpret_cast<const kernels::Float16*>(bytes);
    return hn::ExtractLane(lanes::load_lanes(hn::CappedTag<float, 4>(), halves), kIndex);
  } else {
    kernels::Float16 half;
    std::memcpy(&half.bits, bytes + 2 * kIndex, sizeof(half.bits));
    return half.to_f32();
  }
}

// Returns the f16 at an address, or the one behind it. 8 bytes are read.
HWY_INLINE float half_at(const uint8_t* bytes) { return half_of_four_at<0>(bytes); }
HWY_INLINE float second_half_at(const uint8_t* bytes) { return half_of_four_at<1>(bytes); }

HWY_INLINE hn::Vec<Integers> bytes_at(const uint8_t* bytes) {
  return hn::PromoteTo(Integers(), hn::LoadU(Codes(), bytes));
}

// Returns the low or the high nibble of each of some bytes.
template <int kNibble>
HWY_INLINE hn::Vec<Integers> nibbles_at(const uint8_t* bytes) {
  return hn::And(hn::ShiftRight<4 * kNibble>(bytes_at(bytes)), hn::Set(Integers(), 15));
}

// Returns (codes - middle) * scale.
HWY_INLINE hn::Vec<Floats> scaled(hn::Vec<Integers> codes, int32_t middle, float scale) {
  const auto numbers = hn::ConvertTo(Floats(), hn::Sub(codes, hn::Set(Integers(), middle)));
  return hn::Mul(numbers, hn::Set(Floats(), scale));
}

// ---- Formats ------------------------------------------------------------------------------------
//
// for_each_vector() calls fn(first element, elements) for each vector of a block.

HWY_INLINE int64_t lane_count() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// ggml.q8_0: f16 d, 32 signed bytes.
struct SignedBytes {
  static constexpr int64_t kElements = 32, kBytes = 34;

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Fn& fn) {
    const float d = half_at(block);
    const auto* const codes = reinterpret_cast<const int8_t*>(block + 2);
    for (int64_t i = 0; i < kElements; i += lane_count()) {
      fn(i, scaled(hn::PromoteTo(Integers(), hn::LoadU(SignedCodes(), codes + i)), 0, d));
    }
  }
};

// ggml.q4_0, q4_1, q5_0 and q5_1: f16 d, [f16 m], [u32 fifth bits], 16 bytes of two codes, whose
// low nibbles are the first half.
template <int kBits, bool kHasMinimum>
struct Nibbles {
  static constexpr int64_t kFifths = kHasMinimum ? 4 : 2, kCodes = kFifths + (kBits == 5 ? 4 : 0);
  static constexpr int64_t kElements = 32, kBytes = kCodes + 16;

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Fn& fn) {
    const float d = half_at(block), m = kHasMinimum ? second_half_at(block) : 0.0F;
    uint32_t fifths = 0;
    if (kBits == 5) std::memcpy(&fifths, block + kFifths, sizeof(fifths));
    const uint8_t* const codes = block + kCodes;
    for (int64_t i = 0; i < kElements / 2; i += lane_count()) {
      const int64_t second = i + kElements / 2;
      fn(i, elements(with_fifths(nibbles_at<0>(codes + i), fifths, i), d, m));
      fn(second, elements(with_fifths(nibbles_at<1>(codes + i), fifths, second), d, m));
    }
  }

 private:
  static HWY_INLINE hn::Vec<Integers> with_fifths(hn::Vec<Integers> nibbles, uint32_t fifths,
                                                  int64_t first) {
    if (kBits == 4) return nibbles;
    const hn::RebindToUnsigned<Integers> words;
    const auto places = hn::Iota(words, static_cast<uint32_t>(first));
    const auto bits = hn::And(hn::Shr(hn::Set(words, fifths), places), hn::Set(words, 1));
    return hn::Or(nibbles, hn::BitCast(Integers(), hn::ShiftLeft<4>(bits)));
  }

  static HWY_INLINE hn::Vec<Floats> elements(hn::Vec<Integers> codes, float d, float m) {
    if (!kHasMinimum) return scaled(codes, 1 << (kBits - 1), d);
    return hn::Add(scaled(codes, 0, d), hn::Set(Floats(), m));
  }
};

// ggml.q4_k and q5_k: f16 d, f16 dmin, 12 bytes of scales and minima of 6 bits, [32 bytes of fifth
// bits], 128 bytes of two codes.
template <int kBits>
struct NibblesOfParts {
  static constexpr int64_t kFifths = 16, kCodes = kFifths + (kBits == 5 ? 32 : 0);
  static constexpr int64_t kElements = 256, kBytes = kCodes + 128;

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Fn& fn) {
    const float d = half_at(block), dmin = second_half_at(block);
    for (int64_t pair = 0; pair < 4; ++pair) {
      add_part<0>(block, pair, d, dmin, fn);
      add_part<1>(block, pair, d, dmin, fn);
    }
  }

 private:
  // 32 elements, whose codes are the low or the high nibbles of 32 bytes.
  template <int kNibble, typename Fn>
  static HWY_INLINE void add_part(const uint8_t* block, int64_t pair, float d, float dmin,
                                  const Fn& fn) {
    const uint8_t* const packed = block + 4;
    const int64_t part = 2 * pair + kNibble;
    int scale = packed[part % 4] & 63, minimum = packed[part % 4 + 4] & 63;
    if (part >= 4) {
      scale = (packed[part + 4] & 15) | packed[part - 4] >> 6 << 4;
      minimum = packed[part + 4] >> 4 | packed[part] >> 6 << 4;
    }
    const float factor = d * static_cast<float>(scale);
    const auto less = hn::Set(Floats(), dmin * static_cast<float>(minimum));
    for (int64_t i = 0; i < 32; i += lane_count()) {
      auto codes = nibbles_at<kNibble>(block + kCodes + 32 * pair + i);
      if (kBits == 5) {
        const auto upper =
            hn::ShiftRightSame(bytes_at(block + kFifths + i), static_cast<int>(part));
        codes = hn::Or(codes, hn::ShiftLeft<4>(hn::And(upper, hn::Set(Integers(), 1))));
      }
      fn(32 * part + i, hn::Sub(scaled(codes, 0, factor), less));
    }
  }
};

// ggml.q6_k: 128 bytes of two low nibbles, 64 bytes of four pairs of upper bits, 16 signed scales,
// f16 d.
struct SixBits {
  static constexpr int64_t kElements = 256, kBytes = 210;

  template <typename Fn>
  static HWY_INLINE void for_each_vector(const uint8_t* block, const Fn& fn) {
    const float d = half_of_four_at<3>(block + 202);
    for (int64_t half = 0; half < 2; ++half) {
      add_quarter<0>(block, half, d, fn), add_quarter<1>(block, half, d, fn);
      add_quarter<2>(block, half, d, fn), add_quarter<3>(block, half, d, fn);
    }
  }

 private:
  // 32 elements, which have two scales.
  template <int kQuarter, typename Fn>
  static HWY_INLINE void add_quarter(const uint8_t* block, int64_t half, float d, const Fn& fn) {
    constexpr int64_t kPair = kQuarter % 2, kFirst = int64_t{32} * kQuarter;
    const uint8_t* const low = block + 64 * half + 32 * kPair;
    const uint8_t* const high = block + 128 + 32 * half;
    const int64_t first = 128 * half + kFirst;
    for (int64_t i = 0; i < 32; i += lane_count()) {
      const auto scale = static_cast<int8_t>(block[192 + (first + i) / 16]);
      const auto upper =
          hn::And(hn::ShiftRight<2 * kQuarter>(bytes_at(high + i)), hn::Set(Integers(), 3));
      const auto codes = hn::Or(nibbles_at<kQuarter / 2>(low + i), hn::ShiftLeft<4>(upper));
      fn(first + i, scaled(codes, 32, d * static_cast<float>(scale)));
    }
  }
};

// ---- Rows of blocks -----------------------------------------------------------------------------

constexpr int64_t kBytesAhead = 2048, kLineBytes = 64;

// Asks for the bytes that follow a block by kBytesAhead. They may lie behind the weight.
template <class Format>
HWY_INLINE void read_ahead(const uint8_t* block) {
  for (int64_t i = 0; i < Format::kBytes; i += kLineBytes) {
    hwy::Prefetch(block + kBytesAhead + i);
  }
}

// Writes the products of kRows rows of x with one column. A block has sums of its own, so that
// those of several blocks do not wait for each other.
template <class Format, int64_t kRows>
HWY_INLINE void multiply_column(const uint8_t* block, const DotRows& rows, const float* end,
                                float* results, int64_t result_stride) {
  hn::Vec<Floats> totals[kRows];
  std::fill_n(totals, kRows, hn::Zero(Floats()));
  for (const float* x = rows.address; x != end; x += Format::kElements) {
    hn::Vec<Floats> sums[kRows];
    std::fill_n(sums, kRows, hn::Zero(Floats()));
    read_ahead<Format>(block);
    Format::for_each_vector(block, [&](int64_t i, hn::Vec<Floats> elements) HWY_ATTR {
      for (int64_t row = 0; row < kRows; ++row) {
        const auto factors = hn::LoadU(Floats(), x + row * rows.row_stride + i);
        sums[row] = hn::MulAdd(elements, factors, sums[row]);
      }
    });
    for (int64_t row = 0; row < kRows; ++row) totals[row] = hn::Add(totals[row], sums[row]);
    block += Format::kBytes;
  }
  for (int64_t row = 0; row < kRows; ++row) {
    results[row * result_stride] = hn::GetLane(hn::SumOfLanes(Floats(), totals[row]));
  }
}

template <class Format, int64_t kRows>
void multiply_rows(const DotColumns& columns, const DotRows& rows, const DotResults& results) {
  const auto* block = reinterpret_cast<const uint8_t*>(columns.blocks);
  const float* const end = rows.address + columns.block_count * Format::kElements;
  for (int64_t column = 0; column < columns.count; ++column) {
    multiply_column<Format, kRows>(block, rows, end, results.address + column, results.row_stride);
    block += columns.block_count * Format::kBytes;
  }
}

template <class Format>
void multiply(const DotColumns& columns, const DotRows& rows, const DotResults& results) {
  if (rows.count == 1) return multiply_rows<Format, 1>(columns, rows, results);
  if (rows.count == 2) return multiply_rows<Format, 2>(columns, rows, results);
  if (rows.count == 3) return multiply_rows<Format, 3>(columns, rows, results);
  multiply_rows<Format, 4>(columns, rows, results);
}

template <class Format>
void decode(const std::byte* blocks, int64_t block_count, float* elements) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t count = 0; count < block_count; ++count) {
    Format::for_each_vector(block, [&](int64_t i, hn::Vec<Floats> vector)
                                       HWY_ATTR { hn::StoreU(vector, Floats(), elements + i); });
    block += Format::kBytes;
    elements += Format::kElements;
  }
}

template <class Format>
constexpr BlockVectors vectors_of() {
  return {multiply<Format>, decode<Format>};
}

BlockVectors find_vectors(std::string_view format) {
  if (format == "ggml.q4_0") return vectors_of<Nibbles<4, false>>();
  if (format == "ggml.q4_1") return vectors_of<Nibbles<4, true>>();
  if (format == "ggml.q5_0") return vectors_of<Nibbles<5, false>>();
  if (format == "ggml.q5_1") return vectors_of<Nibbles<5, true>>();
  if (format == "ggml.q8_0") return vectors_of<SignedBytes>();
  if (format == "ggml.q4_k") return vectors_of<NibblesOfParts<4>>();
  if (format == "ggml.q5_k") return vectors_of<NibblesOfParts<5>>();
  if (format == "ggml.q6_k") return vectors_of<SixBits>();
  return {};
}

}  // namespace
}  // namespace bp::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::cpu {
namespace {

HWY_EXPORT(find_vectors);

}  // namespace

BlockVectors block_vectors(const BlockFormat& format) {
  return HWY_DYNAMIC_DISPATCH(find_vectors)(format.name);
}

}  // namespace bp::cpu
#endif
