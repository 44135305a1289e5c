// Dot products of rows of a with rows of codes.
//
// A vector of codes has 32-bit lanes, and each lane the codes of kPerLane neighbours, the first one
// in its lowest bits. A row of a is arranged so that its elements meet their codes:
//
//   chunk                 the codes of a vector: kPerLane elements for each lane
//   floats                arranged[chunk][element of the lane][lane]
//   i8 with codes of 8    as they lie
//   i8 with codes of 4    arranged[chunk][element of the lane % 2][lane][element of the lane / 2]
//
// Codes of 4 bits are split into the even and the odd ones, which are bytes.
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
#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/host_kernels/scaled_work.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using Floats = hn::ScalableTag<float>;
using Sums = hn::ScalableTag<int32_t>;
using Words = hn::ScalableTag<uint32_t>;
using Bytes = hn::ScalableTag<uint8_t>;

template <int kBits>
constexpr int64_t kPerLane = 32 / kBits;

inline int64_t lane_count() { return static_cast<int64_t>(hn::Lanes(Floats())); }
template <int kBits>
int64_t chunk_elements() {
  return lane_count() * kPerLane<kBits>;
}

// Returns where element `at` of its chunk is arranged.
template <int kBits, bool kIsInteger>
HWY_INLINE int64_t arranged_place(int64_t at) {
  const int64_t lane = at / kPerLane<kBits>, element = at % kPerLane<kBits>;
  if (!kIsInteger) return element * lane_count() + lane;
  if (kBits == 8) return at;
  return element % 2 * 4 * lane_count() + lane * 4 + element / 2;
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

// Returns the numbers of code kElement of each lane.
template <int kBits, bool kHasSign, int kElement>
HWY_INLINE hn::Vec<Floats> numbers_of_codes(hn::Vec<Words> codes) {
  constexpr int kUnused = 32 - kBits;
  const auto left = hn::ShiftLeft<kUnused - kElement * kBits>(codes);
  if constexpr (kHasSign) {
    return hn::ConvertTo(Floats(), hn::ShiftRight<kUnused>(hn::BitCast(Sums(), left)));
  } else {
    return hn::ConvertTo(Floats(), hn::BitCast(Sums(), hn::ShiftRight<kUnused>(left)));
  }
}

#if HWY_TARGET <= HWY_AVX3
// A permutation reads only the lower 4 bits of each lane, and has the number of every code.
template <bool kHasSign>
struct CodeTable {
  CodeTable() {
    alignas(64) float numbers[16];
    for (int code = 0; code < 16; ++code) {
      numbers[code] = static_cast<float>(kHasSign && code > 7 ? code - 16 : code);
    }
    table = _mm512_load_ps(numbers);
  }
  template <int kElement>
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    return hn::Vec<Floats>{_mm512_permutexvar_ps(hn::ShiftRight<4 * kElement>(codes).raw, table)};
  }
  __m512 table;
};
#endif

// Gives each lane the number of its block.
template <int kBits>
class BlockLanes {
 public:
  explicit BlockLanes(int64_t block) : block_(block), is_one_(block >= chunk_elements<kBits>()) {
    HWY_ALIGN int32_t places[hn::MaxLanes(Floats())];
    for (int64_t lane = 0; lane < lane_count(); ++lane) {
      places[lane] = is_one_ ? 0 : static_cast<int32_t>(lane * kPerLane<kBits> / block);
    }
    std::copy_n(places, lane_count(), places_);
  }
  HWY_INLINE hn::Vec<Floats> at(const float* numbers, int64_t element) const {
    const float* const from = numbers + element / block_;
    if (is_one_) return hn::Set(Floats(), *from);
    return hn::TableLookupLanes(hn::LoadU(Floats(), from), hn::SetTableIndices(Floats(), places_));
  }

 private:
  int64_t block_;
  bool is_one_;
  HWY_ALIGN int32_t places_[hn::MaxLanes(Floats())];
};

// A row of codes, read in vectors. Behind the last code it gives zeros.
class CodeRow {
 public:
  CodeRow(const std::byte* codes, int64_t size_bytes) : codes_(codes), size_bytes_(size_bytes) {}

  HWY_INLINE hn::Vec<Bytes> at(int64_t byte) const {
    const auto* const from = reinterpret_cast<const uint8_t*>(codes_) + byte;
    const auto whole = static_cast<int64_t>(hn::Lanes(Bytes()));
    if (HWY_LIKELY(size_bytes_ - byte >= whole)) return hn::LoadU(Bytes(), from);
    HWY_ALIGN uint8_t last[hn::MaxLanes(Bytes())] = {};
    std::memcpy(last, from, static_cast<size_t>(size_bytes_ - byte));
    return hn::Load(Bytes(), last);
  }

 private:
  const std::byte* codes_;
  int64_t size_bytes_;
};

// Adds the products of kCount rows of i8 with a vector of codes to sums[0] to sums[kCount - 1].
template <int kBits, int64_t kCount>
HWY_INLINE void add_chunk(const int8_t* a, int64_t row_bytes, hn::Vec<Bytes> codes,
                          hn::Vec<Sums>* sums) {
  const auto load = [](const int8_t* from) HWY_ATTR {
    return hn::Load(Bytes(), reinterpret_cast<const uint8_t*>(from));
  };
  if constexpr (kBits == 8) {
    for (int64_t r = 0; r < kCount; ++r) {
      sums[r] = add_products(sums[r], codes, load(a + r * row_bytes));
    }
  } else {
    const auto mask = hn::Set(Words(), 0x0f0f0f0f);
    const auto words = hn::BitCast(Words(), codes);
    const auto even = hn::BitCast(Bytes(), hn::And(words, mask));
    const auto odd = hn::BitCast(Bytes(), hn::And(hn::ShiftRight<4>(words), mask));
    for (int64_t r = 0; r < kCount; ++r) {
      const int8_t* const from = a + r * row_bytes;
      sums[r] = add_products(sums[r], even, load(from));
      sums[r] = add_products(sums[r], odd, load(from + hn::Lanes(Bytes())));
    }
  }
}

// Computes results[r] from the whole sums of one block. They are exact until they become floats.
template <int kBits, int64_t kCount>
void dot_integers(const ScaledFactors& f, const BlockLanes<kBits>&, float* results) {
  const ScaledWork& work = f.work;
  const int64_t depth = work.product.depth, chunk = chunk_elements<kBits>();
  const int64_t row_bytes = work.layout.row_bytes;
  const CodeRow codes(f.codes, depth * kBits / 8);
  const auto* const a = reinterpret_cast<const int8_t*>(work.arranged) + f.row * row_bytes;
  const auto flip = hn::Set(Bytes(), sign_flip(work.product.b_dtype));
  hn::Vec<Sums> sums[kCount];
  for (int64_t r = 0; r < kCount; ++r) sums[r] = hn::Zero(Sums());
  for (int64_t k = 0; k < depth; k += chunk) {
    add_chunk<kBits, kCount>(a + k, row_bytes, hn::Xor(codes.at(k * kBits / 8), flip), sums);
  }
  const int64_t zero =
      work.product.has_zero ? static_cast<int64_t>(*f.blocks.zeros) : offset_of_codes(work.product);
  for (int64_t r = 0; r < kCount; ++r) {
    const int64_t sum =
        hn::GetLane(hn::SumOfLanes(Sums(), sums[r])) - zero * work.factors[f.row + r].sum;
    results[r] = static_cast<float>(sum) * *f.blocks.scales;
  }
}

// Computes results[r] block by block.
template <int kBits, bool kHasZero, int64_t kCount>
void dot_integer_blocks(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) {
  const ScaledWork& work = f.work;
  const int64_t depth = work.product.depth, chunk = chunk_elements<kBits>();
  const int64_t row_bytes = work.layout.row_bytes, row_lanes = work.layout.row_lanes;
  const CodeRow codes(f.codes, depth * kBits / 8);
  const auto* const a = reinterpret_cast<const int8_t*>(work.arranged) + f.row * row_bytes;
  const float* const lane_sums = work.sums + f.row * row_lanes;
  const auto flip = hn::Set(Bytes(), sign_flip(work.product.b_dtype));
  const auto offset = hn::Set(Floats(), static_cast<float>(offset_of_codes(work.product)));
  hn::Vec<Floats> results_of_lanes[kCount];
  for (int64_t r = 0; r < kCount; ++r) results_of_lanes[r] = hn::Zero(Floats());
  for (int64_t k = 0; k < depth; k += chunk) {
    hn::Vec<Sums> sums[kCount];
    for (int64_t r = 0; r < kCount; ++r) sums[r] = hn::Zero(Sums());
    add_chunk<kBits, kCount>(a + k, row_bytes, hn::Xor(codes.at(k * kBits / 8), flip), sums);
    const auto scale = lanes.at(f.blocks.scales, k);
    const auto zero = kHasZero ? lanes.at(f.blocks.zeros, k) : offset;
    for (int64_t r = 0; r < kCount; ++r) {
      const auto of_a = hn::Load(Floats(), lane_sums + r * row_lanes + k / kPerLane<kBits>);
      const auto sum = hn::NegMulAdd(zero, of_a, hn::ConvertTo(Floats(), sums[r]));
      results_of_lanes[r] = hn::MulAdd(sum, scale, results_of_lanes[r]);
    }
  }
  for (int64_t r = 0; r < kCount; ++r) {
    results[r] = hn::GetLane(hn::SumOfLanes(Floats(), results_of_lanes[r]));
  }
}

// Adds the products of kCount rows of floats with element kElement of each lane of codes.
template <int64_t kCount>
HWY_INLINE void add_element(const float* a, int64_t stride, hn::Vec<Floats> number,
                            hn::Vec<Floats>* sums) {
  for (int64_t r = 0; r < kCount; ++r) {
    sums[r] = hn::MulAdd(number, hn::Load(Floats(), a + r * stride), sums[r]);
  }
}

template <int kBits, bool kHasSign, bool kHasZero, int64_t kCount, int... kElement>
HWY_INLINE void dot_floats_of(const ScaledFactors& f, const BlockLanes<kBits>& lanes,
                              float* results, std::integer_sequence<int, kElement...>) {
  const ScaledWork& work = f.work;
  const int64_t depth = work.product.depth, chunk = chunk_elements<kBits>();
  const CodeRow codes(f.codes, depth * kBits / 8);
  const int64_t stride = work.layout.row_bytes / static_cast<int64_t>(sizeof(float));
  const float* const a = reinterpret_cast<const float*>(work.arranged) + f.row * stride;
#if HWY_TARGET <= HWY_AVX3
  const CodeTable<kHasSign> table;
#endif
  hn::Vec<Floats> results_of_lanes[kCount];
  for (int64_t r = 0; r < kCount; ++r) results_of_lanes[r] = hn::Zero(Floats());
  for (int64_t k = 0; k < depth; k += chunk) {
    const auto words = hn::BitCast(Words(), codes.at(k * kBits / 8));
    const auto zero = kHasZero ? lanes.at(f.blocks.zeros, k) : hn::Zero(Floats());
    const auto number_of = [&]<int kAt>(std::integral_constant<int, kAt>) HWY_ATTR {
      hn::Vec<Floats> number;
#if HWY_TARGET <= HWY_AVX3
      if constexpr (kBits == 4) {
        number = table.template at<kAt>(words);
      } else {
        number = numbers_of_codes<kBits, kHasSign, kAt>(words);
      }
#else
      number = numbers_of_codes<kBits, kHasSign, kAt>(words);
#endif
      return kHasZero ? hn::Sub(number, zero) : number;
    };
    hn::Vec<Floats> sums[kCount];
    for (int64_t r = 0; r < kCount; ++r) sums[r] = hn::Zero(Floats());
    (add_element<kCount>(a + k + kElement * lane_count(), stride,
                         number_of(std::integral_constant<int, kElement>()), sums),
     ...);
    const auto scale = lanes.at(f.blocks.scales, k);
    for (int64_t r = 0; r < kCount; ++r) {
      results_of_lanes[r] = hn::MulAdd(sums[r], scale, results_of_lanes[r]);
    }
  }
  for (int64_t r = 0; r < kCount; ++r) {
    results[r] = hn::GetLane(hn::SumOfLanes(Floats(), results_of_lanes[r]));
  }
}

template <int kBits, bool kHasSign, bool kHasZero>
struct DotFloats {
  template <int64_t kCount>
  static void run(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) {
    dot_floats_of<kBits, kHasSign, kHasZero, kCount>(
        f, lanes, results, std::make_integer_sequence<int, static_cast<int>(kPerLane<kBits>)>());
  }
};
template <int kBits>
struct DotIntegers {
  template <int64_t kCount>
  static void run(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) {
    dot_integers<kBits, kCount>(f, lanes, results);
  }
};
template <int kBits, bool kHasZero>
struct DotIntegerBlocks {
  template <int64_t kCount>
  static void run(const ScaledFactors& f, const BlockLanes<kBits>& lanes, float* results) {
    dot_integer_blocks<kBits, kHasZero, kCount>(f, lanes, results);
  }
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SCALED_DOT_INL_HPP
