// Dot products of rows of a with rows of codes.
//
// A row of a is arranged so that its elements meet their codes (scaled_codes-inl.hpp):
//
//   chunk                 the codes of a vector: kPerLane elements for each lane
//   floats                arranged[chunk][element of the lane][lane]
//   i8 with codes of 8    as they lie
//   i8 with codes of 4    arranged[chunk][element of the lane % 2][lane][element of the lane / 2]
//   i8 with codes of 2    arranged[chunk][element of the lane % 4][lane][element of the lane / 4]
//
// Codes of 4 or 2 bits are split into two or four vectors of bytes.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SCALED_DOT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SCALED_DOT_INL_HPP
#undef BACKPLANE_CPU_SCALED_DOT_INL_HPP
#else
#define BACKPLANE_CPU_SCALED_DOT_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "backends/host_kernels/scaled_codes-inl.hpp"
#include "backends/host_kernels/scaled_work.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Returns where element `at` of its chunk of i8 is arranged.
template <int kBits>
HWY_INLINE int64_t arranged_place(int64_t at) {
  const int64_t lane = at / kPerLane<kBits>, element = at % kPerLane<kBits>;
  constexpr int64_t kVectors = 8 / kBits;
  return element % kVectors * 4 * lane_count() + lane * 4 + element / kVectors;
}

// Adds to each lane of `sums` the products of its 4 bytes. Every sum is exact.
HWY_INLINE hn::Vec<Sums> add_products(hn::Vec<Sums> sums, hn::Vec<Bytes> codes,
                                      hn::Vec<Bytes> factors) {
#if HWY_TARGET == HWY_AVX3_DL
  // Highway detects AVX512_VNNI with this target, but lets the compiler use no instruction of it.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(factors.raw));
  return sums;
#elif HWY_ARCH_X86
  const hn::ScalableTag<int16_t> d;
  const hn::ScalableTag<uint16_t> unsigned_d;
  const auto pairs = hn::BitCast(unsigned_d, codes);
  const auto even = hn::BitCast(d, hn::And(pairs, hn::Set(unsigned_d, 0xff)));
  const auto odd = hn::BitCast(d, hn::ShiftRight<8>(pairs));
  const auto upper = hn::BitCast(d, factors);
  const auto lower = hn::BitCast(d, hn::ShiftLeft<8>(hn::BitCast(unsigned_d, factors)));
  auto unused = hn::Zero(Sums());
  sums = hn::ReorderWidenMulAccumulate(Sums(), even, hn::ShiftRight<8>(lower), sums, unused);
  sums = hn::ReorderWidenMulAccumulate(Sums(), odd, hn::ShiftRight<8>(upper), sums, unused);
  return hn::Add(sums, unused);
#else
  const auto words = hn::BitCast(Words(), codes), others = hn::BitCast(Words(), factors);
  const auto add = [&]<int kByte>(std::integral_constant<int, kByte>) HWY_ATTR {
    const auto code = hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * kByte>(words));
    const auto factor = hn::BitCast(Sums(), hn::ShiftLeft<24 - 8 * kByte>(others));
    sums = hn::Add(sums, hn::Mul(hn::BitCast(Sums(), code), hn::ShiftRight<24>(factor)));
  };
  add(std::integral_constant<int, 0>()), add(std::integral_constant<int, 1>());
  add(std::integral_constant<int, 2>()), add(std::integral_constant<int, 3>());
  return sums;
#endif
}

// Gives each lane the number of its block. A vector lies in one block, or has whole ones.
template <int kBits>
class BlockLanes {
 public:
  explicit BlockLanes(int64_t block) {
    const int64_t chunk = chunk_elements<kBits>();
    is_one_ = block >= chunk;
    count_ = is_one_ ? block / chunk : chunk / block;
    HWY_ALIGN int32_t places[hn::MaxLanes(Floats())];
    for (int64_t lane = 0; lane < lane_count(); ++lane) {
      places[lane] = is_one_ ? 0 : static_cast<int32_t>(lane * kPerLane<kBits> / block);
    }
    std::copy_n(places, lane_count(), places_);
  }

  // The first block of a vector, and how many more vectors begin in it.
  struct Cursor {
    int64_t block, more;
  };
  Cursor begin(bool is_one_block) const {
    return {0, is_one_block ? std::numeric_limits<int64_t>::max() : count_ - 1};
  }
  HWY_INLINE void advance(Cursor& cursor) const {
    if (!is_one_) {
      cursor.block += count_;
    } else if (cursor.more-- == 0) {
      cursor = {cursor.block + 1, count_ - 1};
    }
  }

  HWY_INLINE hn::Vec<Floats> at(const float* numbers, const Cursor& cursor) const {
    const float* const from = numbers + cursor.block;
    if (is_one_) return hn::Set(Floats(), *from);
    return hn::TableLookupLanes(hn::LoadU(Floats(), from), hn::SetTableIndices(Floats(), places_));
  }

 private:
  bool is_one_;
  int64_t count_;  // The vectors of a block, or the blocks of a vector.
  HWY_ALIGN int32_t places_[hn::MaxLanes(Floats())];
};

// Adds the products of kCount rows of i8 with a vector of codes to sums[0] to sums[kCount - 1].
template <int kBits, int64_t kCount>
HWY_INLINE void add_chunk(const int8_t* a, int64_t row_bytes, hn::Vec<Bytes> codes,
                          hn::Vec<Sums>* sums) {
  const auto vector_bytes = static_cast<int64_t>(hn::Lanes(Bytes()));
  const auto add = [&](int64_t vector, hn::Vec<Bytes> part) HWY_ATTR {
    for (int64_t r = 0; r < kCount; ++r) {
      const int8_t* const from = a + r * row_bytes + vector * vector_bytes;
      sums[r] =
          add_products(sums[r], part, hn::Load(Bytes(), reinterpret_cast<const uint8_t*>(from)));
    }
  };
  const auto words = hn::BitCast(Words(), codes);
  if constexpr (kBits == 8) {
    add(0, codes);
  } else if constexpr (kBits == 4) {
    const auto mask = hn::Set(Words(), 0x0f0f0f0f);
    add(0, hn::BitCast(Bytes(), hn::And(words, mask)));
    add(1, hn::BitCast(Bytes(), hn::And(hn::ShiftRight<4>(words), mask)));
  } else {
    const auto mask = hn::Set(Words(), 0x03030303);
    add(0, hn::BitCast(Bytes(), hn::And(words, mask)));
    add(1, hn::BitCast(Bytes(), hn::And(hn::ShiftRight<2>(words), mask)));
    add(2, hn::BitCast(Bytes(), hn::And(hn::ShiftRight<4>(words), mask)));
    add(3, hn::BitCast(Bytes(), hn::And(hn::ShiftRight<6>(words), mask)));
  }
}

// Returns the sum of all lanes, which an i32 may not hold.
HWY_INLINE int64_t sum_of_lanes(hn::Vec<Sums> sums) {
  const hn::Repartition<int64_t, Sums> d;
  const hn::Half<Sums> half;
  const auto lower = hn::PromoteTo(d, hn::LowerHalf(half, sums));
  const auto upper = hn::PromoteTo(d, hn::UpperHalf(half, sums));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(lower, upper)));
}

// Products of i8 with codes in one block for each row of b. They are exact until they become
// floats.
//
// A zero point of a takes a_zero * (the sum of b - b_zero) off. If rows of a have one, the products
// of the codes with ones give this sum.
template <int kBits, bool kHasZeroOfA>
class DotIntegers {
 public:
  static constexpr bool kIsInteger = true, kHasByteZeros = false;

  explicit DotIntegers(const ScaledWork& work) : work_(work) {}

  template <int64_t kCount>
  void run(const ScaledFactors& f, const BlockLanes<kBits>&, float* results) const {
    // The sums of one row wait for each other, so there are several.
    constexpr int64_t kWays = kCount == 1 ? 4 : 1;
    const ScaledProduct& p = work_.product;
    const int64_t chunk = chunk_elements<kBits>(), row_bytes = work_.layout.row_bytes;
    const CodeRow<kBits> row(f.codes, p.depth);
    const auto* const a = reinterpret_cast<const int8_t*>(work_.arranged) + f.row * row_bytes;
    const auto flip = hn::Set(Bytes(), sign_flip(p.b_dtype));
    hn::Vec<Sums> sums[kWays][kCount], sum_of_b = hn::Zero(Sums());
    for (auto& way : sums) std::fill_n(way, kCount, hn::Zero(Sums()));
    const auto add = [&](int64_t k, hn::Vec<Sums>* to) HWY_ATTR {
      const auto codes = hn::Xor(row.at(k), flip);
      add_chunk<kBits, kCount>(a + k, row_bytes, codes, to);
      if constexpr (kHasZeroOfA) add_chunk<kBits, 1>(work_.ones() + k, 0, codes, &sum_of_b);
    };
    int64_t k = 0;
    for (; k + kWays * chunk <= p.depth; k += kWays * chunk) {
      for (int64_t way = 0; way < kWays; ++way) add(k + way * chunk, sums[way]);
    }
    for (; k < p.depth; k += chunk) add(k, sums[0]);
    const int64_t zero = p.has_zero ? static_cast<int64_t>(*f.blocks.zeros) : offset_of_codes(p);
    const int64_t of_b = kHasZeroOfA ? sum_of_lanes(sum_of_b) - zero * p.depth : 0;
    for (int64_t r = 0; r < kCount; ++r) {
      for (int64_t way = 1; way < kWays; ++way) sums[0][r] = hn::Add(sums[0][r], sums[way][r]);
      const RowFactors& row_of_a = work_.factors[f.row + r];
      const int64_t sum = sum_of_lanes(sums[0][r]) - zero * row_of_a.sum - row_of_a.zero * of_b;
      results[r] = static_cast<float>(sum) * *f.blocks.scales;
    }
  }

 private:
  const ScaledWork& work_;
};

// The same with several blocks. The sum of a lane in one block is an integer below 2^24, and exact
// as a float.
template <int kBits, bool kHasZero, bool kHasZeroOfA>
class DotIntegerBlocks {
 public:
  static constexpr bool kIsInteger = true, kHasByteZeros = false;

  explicit DotIntegerBlocks(const ScaledWork& work) : work_(work) {}

  template <int64_t kCount>
  void run(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) const {
    const ScaledProduct& p = work_.product;
    const int64_t chunk = chunk_elements<kBits>(), row_lanes = work_.layout.row_lanes;
    const int64_t row_bytes = work_.layout.row_bytes;
    const CodeRow<kBits> row(f.codes, p.depth);
    const auto* const a = reinterpret_cast<const int8_t*>(work_.arranged) + f.row * row_bytes;
    const float* const lane_sums = work_.sums + f.row * row_lanes;
    const auto flip = hn::Set(Bytes(), sign_flip(p.b_dtype));
    const auto offset = hn::Set(Floats(), static_cast<float>(offset_of_codes(p)));
    hn::Vec<Floats> results_of_lanes[kCount];
    std::fill_n(results_of_lanes, kCount, hn::Zero(Floats()));
    auto cursor = lanes.begin(false);
    for (int64_t k = 0; k < p.depth; k += chunk, lanes.advance(cursor)) {
      hn::Vec<Sums> sums[kCount];
      std::fill_n(sums, kCount, hn::Zero(Sums()));
      const auto codes = hn::Xor(row.at(k), flip);
      add_chunk<kBits, kCount>(a + k, row_bytes, codes, sums);
      const auto scale = lanes.at(f.blocks.scales, cursor);
      const auto zero = kHasZero ? lanes.at(f.blocks.zeros, cursor) : offset;
      auto of_b = hn::Zero(Floats());
      if constexpr (kHasZeroOfA) {
        auto sum_of_b = hn::Zero(Sums());
        add_chunk<kBits, 1>(work_.ones() + k, 0, codes, &sum_of_b);
        const auto count = hn::Load(Floats(), work_.sums_of_ones() + k / kPerLane<kBits>);
        of_b = hn::NegMulAdd(zero, count, hn::ConvertTo(Floats(), sum_of_b));
      }
      for (int64_t r = 0; r < kCount; ++r) {
        const auto of_a = hn::Load(Floats(), lane_sums + r * row_lanes + k / kPerLane<kBits>);
        auto sum = hn::NegMulAdd(zero, of_a, hn::ConvertTo(Floats(), sums[r]));
        if constexpr (kHasZeroOfA) {
          const auto zero_of_a =
              hn::Set(Floats(), static_cast<float>(work_.factors[f.row + r].zero));
          sum = hn::NegMulAdd(zero_of_a, of_b, sum);
        }
        results_of_lanes[r] = hn::MulAdd(sum, scale, results_of_lanes[r]);
      }
    }
    for (int64_t r = 0; r < kCount; ++r) {
      results[r] = hn::GetLane(hn::SumOfLanes(Floats(), results_of_lanes[r]));
    }
  }

 private:
  const ScaledWork& work_;
};

// Products of floats with the numbers of codes.
template <int kStored, class Decoder, bool kHasZero>
class DotFloats {
 public:
  static constexpr int kBits = kBitsInLane<kStored>;
  static constexpr bool kIsInteger = false, kHasByteZeros = false;
  using Element = float;

  DotFloats(const ScaledWork& work, const Decoder& decoder) : work_(work), decoder_(decoder) {}

  // What the numbers of codes are too high by, like a zero point.
  float raise() const { return raise_of(decoder_); }

  static int64_t place(int64_t at) {
    return at % kPerLane<kBits> * lane_count() + at / kPerLane<kBits>;
  }
  static float element(float number) { return number; }

  template <int64_t kCount>
  void run(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) const {
    run_elements<kCount>(f, lanes, results,
                         std::make_integer_sequence<int, static_cast<int>(kPerLane<kBits>)>());
  }

 private:
  // Adds the products of kCount rows of floats with one element of each lane of codes.
  template <int64_t kCount>
  static HWY_INLINE void add_element(const float* a, int64_t stride, hn::Vec<Floats> number,
                                     hn::Vec<Floats>* sums) {
    for (int64_t r = 0; r < kCount; ++r) {
      sums[r] = hn::MulAdd(number, hn::Load(Floats(), a + r * stride), sums[r]);
    }
  }

  template <int64_t kCount, int... kElement>
  HWY_INLINE void run_elements(const ScaledFactors& f, const BlockLanes<kBits>& lanes,
                               float* results, std::integer_sequence<int, kElement...>) const {
    // The sums of one row wait for each other, so there are two.
    constexpr int kWays = kCount == 1 ? 2 : 1;
    const int64_t depth = work_.product.depth, chunk = chunk_elements<kBits>();
    const CodeRow<kStored> row(f.codes, depth);
    const int64_t stride = work_.layout.row_bytes / static_cast<int64_t>(sizeof(float));
    const float* const a = reinterpret_cast<const float*>(work_.arranged) + f.row * stride;
    const Decoder decoder = decoder_;
    const auto raise = hn::Set(Floats(), raise_of(decoder_));
    hn::Vec<Floats> results_of_lanes[kCount];
    std::fill_n(results_of_lanes, kCount, hn::Zero(Floats()));
    auto cursor = lanes.begin(work_.product.is_one_block());
    for (int64_t k = 0; k < depth; k += chunk, lanes.advance(cursor)) {
      const auto prepared = decoder.prepare(row.at(k));
      const auto zero = kHasZero ? lanes.at(f.blocks.zeros, cursor) : raise;
      hn::Vec<Floats> sums[kWays][kCount];
      for (auto& way : sums) std::fill_n(way, kCount, hn::Zero(Floats()));
      const auto add = [&]<int kAt>(std::integral_constant<int, kAt>) HWY_ATTR {
        const auto number = decoder.template at<kAt>(prepared);
        add_element<kCount>(a + k + kAt * lane_count(), stride,
                            kHasZero || kIsRaised<Decoder> ? hn::Sub(number, zero) : number,
                            sums[kAt % kWays]);
      };
      (add(std::integral_constant<int, kElement>()), ...);
      const auto scale = lanes.at(f.blocks.scales, cursor);
      for (int64_t r = 0; r < kCount; ++r) {
        auto sum = sums[0][r];
        if constexpr (kWays == 2) sum = hn::Add(sum, sums[1][r]);
        results_of_lanes[r] = hn::MulAdd(sum, scale, results_of_lanes[r]);
      }
    }
    for (int64_t r = 0; r < kCount; ++r) {
      results[r] = hn::GetLane(hn::SumOfLanes(Floats(), results_of_lanes[r]));
    }
  }

  const ScaledWork& work_;
  Decoder decoder_;
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SCALED_DOT_INL_HPP
