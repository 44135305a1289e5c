// Dot products of rows of floats with rows of codes, by tables of bytes (AVX512_VBMI).
//
// A code of up to 8 bits stands for a number that is a bf16. Two lookups in tables of bytes give
// the lower and the upper bytes of 64 numbers, and interleaving these gives two vectors of bf16:
// the lower one has the codes 0 to 7 of every 16 bytes, and the upper one the codes 8 to 15. Codes
// of 4 or 2 bits are first split into two or four vectors of bytes. In this file a "split" is the
// place of a code in its byte, and a "half" is 0 for the lower vector of bf16 and 1 for the upper.
//
//   a of f32              arranged[chunk][split][half][even, odd][lane]; a bf16 becomes an f32
//   a of bf16             arranged[chunk][split][half][lane][even, odd]; vdpbf16ps
//
// A zero point is subtracted from the codes as an integer, so that the difference is exact and
// costs one instruction for 64 codes. The sum of a times the zero point would cost less, but it
// loses the digits of a group whose codes lie near the zero point.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SCALED_PAIRS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SCALED_PAIRS_INL_HPP
#undef BACKPLANE_CPU_SCALED_PAIRS_INL_HPP
#else
#define BACKPLANE_CPU_SCALED_PAIRS_INL_HPP
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "backends/host_kernels/scaled_codes-inl.hpp"
#include "backends/host_kernels/scaled_work.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3_DL

// Adds the two products of each lane. Highway has no target with AVX512_BF16, so the compiler has
// no name for the instruction.
HWY_INLINE __m512 add_products_of_bf16(__m512 sums, __m512i numbers, __m512i factors) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(numbers), "vm"(factors));
  return sums;
}

// Finds the scales of the lanes of each half of a chunk.
template <int kBits>
class HalfLanes {
 public:
  explicit HalfLanes(int64_t block) {
    constexpr int64_t kPerByte = 8 / kBits;
    is_one_ = block >= chunk_elements<kBits>();
    is_alike_ = block >= 16 * kPerByte;
    alignas(64) int32_t places[2][kMostLanes];
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t lane = 0; lane < kMostLanes; ++lane) {
        const int64_t byte = lane / 4 * 16 + half * 8 + lane % 4 * 2;
        places[half][lane] = is_one_ ? 0 : static_cast<int32_t>(byte * kPerByte / block);
      }
    }
    lower_ = _mm512_load_si512(places[0]), upper_ = _mm512_load_si512(places[1]);
  }

  // Returns whether the lanes of both halves have the same blocks.
  HWY_INLINE bool is_alike() const { return is_alike_; }

  // Return the numbers of the lanes, where those of the blocks of a chunk begin at `numbers`.
  HWY_INLINE __m512 lower(const float* numbers) const {
    if (is_one_) return _mm512_set1_ps(*numbers);
    return _mm512_permutexvar_ps(lower_, _mm512_loadu_ps(numbers));
  }
  HWY_INLINE __m512 upper(const float* numbers) const {
    return _mm512_permutexvar_ps(upper_, _mm512_loadu_ps(numbers));
  }

 private:
  bool is_one_, is_alike_;
  __m512i lower_, upper_;
};

// Products of floats with the numbers of codes. If `kIsBf16`, a consists of bf16 and subnormals
// count as 0.
template <int kStored, bool kHasZero, bool kIsBf16>
class DotPairs {
 public:
  static constexpr int kBits = kBitsInLane<kStored>;
  static constexpr bool kIsInteger = false, kHasByteZeros = kHasZero;
  using Element = std::conditional_t<kIsBf16, uint16_t, float>;

  explicit DotPairs(const ScaledWork& work)
      : work_(work), table_(code_format(work.product.b_dtype)), halves_(work.product.block) {}

  // Returns where element `at` of its chunk is arranged.
  static int64_t place(int64_t at) {
    const int64_t byte = at / kSplits, split = at % kSplits;
    const int64_t half = byte % 16 / 8, lane = byte / 16 * 4 + byte % 8 / 2, parity = byte % 2;
    return (split * 2 + half) * 32 + (kIsBf16 ? lane * 2 + parity : parity * 16 + lane);
  }
  static Element element(float number) {
    if constexpr (kIsBf16) {
      return static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
    } else {
      return number;
    }
  }

  template <int64_t kCount>
  void run(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) const {
    if (work_.product.is_one_block()) {
      run_block<kCount>(f, results);
    } else {
      run_blocks<kCount>(f, lanes, results);
    }
  }

 private:
  static constexpr int kSplits = 8 / kBits;
  static constexpr int64_t kChunk = int64_t{64} * kSplits;

  // The sums of some rows and of both halves. With 4 ways the even and the odd elements of a have
  // their own sums, so that fewer additions wait for each other.
  template <int kCount, int kWays>
  struct Sums {
    HWY_INLINE void clear() {
      unrolled<kCount * kWays>([&](auto i) HWY_ATTR { of[i] = _mm512_setzero_ps(); });
    }
    template <int kRow, int kHalf>
    HWY_INLINE __m512 of_half() const {
      if constexpr (kWays == 2) return of[kRow * 2 + kHalf];
      return _mm512_add_ps(of[kRow * kWays + kHalf * 2], of[kRow * kWays + kHalf * 2 + 1]);
    }
    __m512 of[kCount * kWays];
  };

  const Element* row_of_a(int64_t row) const {
    return reinterpret_cast<const Element*>(work_.arranged + row * work_.layout.row_bytes);
  }

  template <int kSplit>
  static HWY_INLINE __m512i split(__m512i codes, __m512i zeros) {
    __m512i bytes = codes;
    if constexpr (kSplit != 0) bytes = _mm512_srli_epi32(codes, kSplit * kBits);
    if constexpr (kHasZero) {
      constexpr int kMask = ((1 << kBits) - 1) * 0x01010101;
      bytes = _mm512_sub_epi8(_mm512_and_si512(bytes, _mm512_set1_epi32(kMask)), zeros);
    }
    return bytes;
  }

  template <int kHalf, int kCount, int kWays>
  static HWY_INLINE void add_half(const Element* a, int64_t stride, __m512i pairs,
                                  Sums<kCount, kWays>& sums) {
    constexpr int kParities = kWays / 2;
    if constexpr (kIsBf16) {
      unrolled<kCount>([&](auto r) HWY_ATTR {
        __m512& sum = sums.of[r * kWays + kHalf * kParities];
        sum = add_products_of_bf16(sum, pairs, _mm512_load_si512(a + r * stride));
      });
    } else {
      const auto even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
      const auto odd =
          _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(INT32_C(-0x10000))));
      unrolled<kCount>([&](auto r) HWY_ATTR {
        constexpr int kEven = r * kWays + kHalf * kParities, kOdd = kEven + kParities - 1;
        const float* const from = a + r * stride;
        sums.of[kEven] = _mm512_fmadd_ps(even, _mm512_load_ps(from), sums.of[kEven]);
        sums.of[kOdd] = _mm512_fmadd_ps(odd, _mm512_load_ps(from + 16), sums.of[kOdd]);
      });
    }
  }

  template <int kCount, int kWays>
  static HWY_INLINE void add_chunk(const PairTable<kStored, kHasZero>& table, const Element* a,
                                   int64_t stride, __m512i codes, __m512i zeros,
                                   Sums<kCount, kWays>& sums) {
    unrolled<kSplits>([&](auto at) HWY_ATTR {
      const Pairs pairs = table.at(split<at>(codes, zeros));
      add_half<0>(a + at * 64, stride, pairs.lower, sums);
      add_half<1>(a + at * 64 + 32, stride, pairs.upper, sums);
    });
  }

  // A row of codes has one scale and one zero point.
  template <int kCount>
  HWY_INLINE void run_block(const ScaledFactors& f, float* results) const {
    const int64_t depth = work_.product.depth;
    const CodeRow<kStored> row(f.codes, depth);
    const int64_t stride = row_of_a(1) - row_of_a(0);
    const Element* const a = row_of_a(f.row);
    const PairTable<kStored, kHasZero> table = table_;
    const __m512i flip = _mm512_set1_epi8(flip_);
    const __m512i zeros = _mm512_set1_epi32(kHasZero ? std::bit_cast<int>(*f.blocks.zeros) : 0);
    using BlockSums = Sums<kCount, kIsBf16 ? 2 : 4>;
    const auto add = [&](int64_t k, BlockSums& to) HWY_ATTR {
      add_chunk(table, a + k, stride, codes_at(row, k, flip), zeros, to);
    };
    BlockSums sums, others;  // For one row, the sums of every other chunk.
    sums.clear(), others.clear();
    int64_t k = 0;
    if constexpr (kCount == 1) {
      for (; k + 2 * kChunk <= depth; k += 2 * kChunk) add(k, sums), add(k + kChunk, others);
    }
    for (; k < depth; k += kChunk) add(k, sums);
    unrolled<kCount>([&](auto r) HWY_ATTR {
      const __m512 sum =
                       _mm512_add_ps(sums.template of_half<r, 0>(), sums.template of_half<r, 1>()),
                   other = _mm512_add_ps(others.template of_half<r, 0>(),
                                         others.template of_half<r, 1>());
      results[r] = _mm512_reduce_add_ps(_mm512_add_ps(sum, other)) * *f.blocks.scales;
    });
  }

  template <int kCount>
  HWY_INLINE void run_blocks(const ScaledFactors& f, const BlockLanes<kBits>& lanes,
                             float* results) const {
    const int64_t depth = work_.product.depth;
    const CodeRow<kStored> row(f.codes, depth);
    const int64_t stride = row_of_a(1) - row_of_a(0);
    const Element* const a = row_of_a(f.row);
    const PairTable<kStored, kHasZero> table = table_;
    const HalfLanes<kBits> halves = halves_;
    const __m512i flip = _mm512_set1_epi8(flip_);
    __m512 totals[kCount];
    unrolled<kCount>([&](auto r) HWY_ATTR { totals[r] = _mm512_setzero_ps(); });
    auto cursor = lanes.begin(false);
    for (int64_t k = 0; k < depth; k += kChunk, lanes.advance(cursor)) {
      __m512i zeros = flip;
      if constexpr (kHasZero) zeros = _mm512_castps_si512(lanes.at(f.blocks.zeros, cursor).raw);
      Sums<kCount, 2> sums;
      sums.clear();
      add_chunk(table, a + k, stride, codes_at(row, k, flip), zeros, sums);
      const float* const scales = f.blocks.scales + cursor.block;
      const __m512 scale = halves.lower(scales);
      if (HWY_LIKELY(halves.is_alike())) {
        unrolled<kCount>([&](auto r) HWY_ATTR {
          const __m512 sum =
              _mm512_add_ps(sums.template of_half<r, 0>(), sums.template of_half<r, 1>());
          totals[r] = _mm512_fmadd_ps(sum, scale, totals[r]);
        });
        continue;
      }
      const __m512 other_scale = halves.upper(scales);
      unrolled<kCount>([&](auto r) HWY_ATTR {
        totals[r] = _mm512_fmadd_ps(sums.template of_half<r, 0>(), scale, totals[r]);
        totals[r] = _mm512_fmadd_ps(sums.template of_half<r, 1>(), other_scale, totals[r]);
      });
    }
    unrolled<kCount>([&](auto r) HWY_ATTR { results[r] = _mm512_reduce_add_ps(totals[r]); });
  }

  // With zero points, a signed code is stored as an unsigned one.
  static HWY_INLINE __m512i codes_at(const CodeRow<kStored>& row, int64_t k, __m512i flip) {
    const __m512i codes = row.at(k).raw;
    return kHasZero ? _mm512_xor_si512(codes, flip) : codes;
  }

  const ScaledWork& work_;
  PairTable<kStored, kHasZero> table_;
  HalfLanes<kBits> halves_;
  char flip_ = static_cast<char>(sign_flip(work_.product.b_dtype));
};

#endif  // HWY_TARGET == HWY_AVX3_DL

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SCALED_PAIRS_INL_HPP
