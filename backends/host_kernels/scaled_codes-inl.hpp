// The codes of a row of b as numbers, for dot products (scaled_dot-inl.hpp).
//
// A vector of codes has 32-bit lanes, and each lane the codes of kPerLane neighbours, the first one
// in its lowest bits. Codes of 6 bits are first unpacked to bytes.
//
// A decoder has prepare(codes), which is called once for each vector, and at<kElement>(prepared),
// which returns the numbers of code kElement of each lane. If its numbers are higher than those of
// the codes, raise() says by how much: whoever subtracts a zero point subtracts this with it.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_SCALED_CODES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_SCALED_CODES_INL_HPP
#undef BACKPLANE_CPU_SCALED_CODES_INL_HPP
#else
#define BACKPLANE_CPU_SCALED_CODES_INL_HPP
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "backends/host_kernels/codes-inl.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using Bytes = hn::ScalableTag<uint8_t>;

inline int64_t lane_count() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// The bits that a code of kStored bits takes in a vector.
template <int kStored>
constexpr int kBitsInLane = kStored == 6 ? 8 : kStored;

template <int kBits>
constexpr int64_t kPerLane = 32 / kBits;

// The codes of a vector.
template <int kBits>
int64_t chunk_elements() {
  return lane_count() * kPerLane<kBits>;
}

// ---- Reading
// -------------------------------------------------------------------------------------

// A row of codes, read in vectors. Behind the last code it gives zeros.
template <int kStored>
class CodeRow {
 public:
  CodeRow(const std::byte* codes, int64_t count)
      : codes_(reinterpret_cast<const uint8_t*>(codes)), size_bytes_(count * kStored / 8) {}

  HWY_INLINE hn::Vec<Bytes> at(int64_t element) const {
    // A processor executes too few vectors ahead to wait for memory while it decodes.
    constexpr int64_t kAheadBytes = 2048;
    const int64_t byte = element * kStored / 8;
    hwy::Prefetch(codes_ + byte + kAheadBytes);
    if constexpr (kStored == 6) {
      return unpack(codes_ + byte, size_bytes_ - byte);
    } else {
      const auto whole = static_cast<int64_t>(hn::Lanes(Bytes()));
      if (HWY_LIKELY(size_bytes_ - byte >= whole)) return hn::LoadU(Bytes(), codes_ + byte);
      HWY_ALIGN uint8_t last[hn::MaxLanes(Bytes())] = {};
      std::memcpy(last, codes_ + byte, static_cast<size_t>(size_bytes_ - byte));
      return hn::Load(Bytes(), last);
    }
  }

 private:
#if HWY_TARGET == HWY_AVX3_DL
  // Gives each lane of 32 bits three bytes, and takes four fields of 6 bits out of them.
  static HWY_INLINE hn::Vec<Bytes> unpack(const uint8_t* from, int64_t size_bytes) {
    alignas(64) static constexpr uint8_t kBytes[64] = {
        0,  1,  2,  0,  3,  4,  5,  0,  6,  7,  8,  0,  9,  10, 11, 0,  12, 13, 14, 0,  15, 16,
        17, 0,  18, 19, 20, 0,  21, 22, 23, 0,  24, 25, 26, 0,  27, 28, 29, 0,  30, 31, 32, 0,
        33, 34, 35, 0,  36, 37, 38, 0,  39, 40, 41, 0,  42, 43, 44, 0,  45, 46, 47, 0};
    constexpr int64_t kShifts = 0x322c2620120c0600;  // Of the fields in 64 bits.
    __m512i bytes;
    if (HWY_LIKELY(size_bytes >= 64)) {
      bytes = _mm512_loadu_si512(from);
    } else {
      const __mmask64 rest = (uint64_t{1} << std::min<int64_t>(size_bytes, 48)) - 1;
      bytes = _mm512_maskz_loadu_epi8(rest, from);
    }
    const __m512i spread = _mm512_permutexvar_epi8(_mm512_load_si512(kBytes), bytes);
    const __m512i fields = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kShifts), spread);
    return hn::And(hn::Vec<Bytes>{fields}, hn::Set(Bytes(), 63));
  }
#else
  static HWY_INLINE hn::Vec<Bytes> unpack(const uint8_t* from, int64_t size_bytes) {
    HWY_ALIGN uint8_t codes[hn::MaxLanes(Bytes())] = {};
    unpack_sixes(from, std::min(static_cast<int64_t>(hn::Lanes(Bytes())), size_bytes * 8 / 6),
                 codes);
    return hn::Load(Bytes(), codes);
  }
#endif

  const uint8_t* codes_;
  int64_t size_bytes_;
};

// ---- Decoders
// ------------------------------------------------------------------------------------

// Shifts each code to the lowest bits of its lane, and computes its number.
template <int kBits, class Codes>
class ComputedNumbers {
 public:
  explicit ComputedNumbers(const CodeFormat& format) : codes_(format) {}
  HWY_INLINE hn::Vec<Words> prepare(hn::Vec<Bytes> codes) const {
    return hn::BitCast(Words(), codes);
  }
  template <int kElement>
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    constexpr int kUnused = 32 - kBits;
    return codes_.at(hn::ShiftRight<kUnused>(hn::ShiftLeft<kUnused - kElement * kBits>(codes)));
  }

 private:
  Codes codes_;
};

// The same for integers, whose sign is at the end of the lane between the two shifts.
template <int kBits, bool kHasSign>
class IntegerNumbers {
 public:
  explicit IntegerNumbers(const CodeFormat&) {}
  HWY_INLINE hn::Vec<Words> prepare(hn::Vec<Bytes> codes) const {
    return hn::BitCast(Words(), codes);
  }
  template <int kElement>
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    constexpr int kUnused = 32 - kBits;
    const auto left = hn::ShiftLeft<kUnused - kElement * kBits>(codes);
    if constexpr (kHasSign) {
      return hn::ConvertTo(Floats(), hn::ShiftRight<kUnused>(hn::BitCast(Sums(), left)));
    } else {
      return hn::ConvertTo(Floats(), hn::BitCast(Sums(), hn::ShiftRight<kUnused>(left)));
    }
  }
};

#if HWY_TARGET <= HWY_AVX3
// A permutation reads only the lower 4 bits of each lane, and has the number of every code. If
// codes have 2 bits, the other 2 bits make no difference.
template <int kBits>
class TableNumbers {
 public:
  explicit TableNumbers(const CodeFormat& format) {
    alignas(64) float numbers[16];
    for (uint32_t code = 0; code < 16; ++code) {
      numbers[code] = value_of_code(format, code & ((1u << kBits) - 1));
    }
    table_ = _mm512_load_ps(numbers);
  }
  HWY_INLINE hn::Vec<Words> prepare(hn::Vec<Bytes> codes) const {
    return hn::BitCast(Words(), codes);
  }
  template <int kElement>
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    const auto places = hn::ShiftRight<kElement * kBits>(codes);
    return hn::Vec<Floats>{_mm512_permutexvar_ps(places.raw, table_)};
  }

 private:
  __m512 table_;
};
#endif

#if HWY_TARGET <= HWY_AVX3
// Puts an integer, counted from the lowest one, into the lowest bits of 2^23: one instruction for a
// code. The difference to 2^23 and a zero point is exact.
template <int kBits>
class RaisedNumbers {
 public:
  explicit RaisedNumbers(const CodeFormat& format)
      : raise_(0x1p23F - static_cast<float>(format.low())) {
    constexpr int kEveryCode = 0xff / ((1 << kBits) - 1);
    const int flip = format.has_sign ? kEveryCode << (kBits - 1) : 0;
    flip_ = hn::Set(Bytes(), static_cast<uint8_t>(flip));
  }

  float raise() const { return raise_; }

  // Bytes, each of which has one code.
  struct Split {
    hn::Vec<Bytes> parts[8 / kBits];
  };
  HWY_INLINE Split prepare(hn::Vec<Bytes> codes) const {
    Split split;
    const auto words = hn::BitCast(Words(), hn::Xor(codes, flip_));
    const auto put = [&]<int... kPart>(std::integer_sequence<int, kPart...>) HWY_ATTR {
      const auto mask = hn::Set(Bytes(), static_cast<uint8_t>((1 << kBits) - 1));
      ((split.parts[kPart] =
            hn::And(hn::BitCast(Bytes(), hn::ShiftRight<kPart * kBits>(words)), mask)),
       ...);
    };
    put(std::make_integer_sequence<int, 8 / kBits>());
    return split;
  }
  template <int kElement>
  HWY_INLINE hn::Vec<Floats> at(const Split& split) const {
    constexpr int kByte = kElement / (8 / kBits);
    constexpr __mmask64 kLowestBytes = 0x1111111111111111;
    const __m512i power = _mm512_castps_si512(_mm512_set1_ps(0x1p23F));
    const __m512i part = split.parts[kElement % (8 / kBits)].raw;
    __m512i number;
    if constexpr (kByte == 0) {
      number = _mm512_mask_mov_epi8(power, kLowestBytes, part);
    } else {
      const __m512i bytes = _mm512_set4_epi32(12 + kByte, 8 + kByte, 4 + kByte, kByte);
      number = _mm512_mask_shuffle_epi8(power, kLowestBytes, part, bytes);
    }
    return hn::Vec<Floats>{_mm512_castsi512_ps(number)};
  }

 private:
  hn::Vec<Bytes> flip_;
  float raise_;
};
#endif

#if HWY_TARGET == HWY_AVX3_DL
// Calls fn(0) to fn(kCount - 1), where each argument is a constant. A compiler keeps an array in
// registers only if all its indices are constants.
template <int kCount, typename Fn>
HWY_INLINE void unrolled(const Fn& fn) {
  const auto call = [&]<int... kAt>(std::integer_sequence<int, kAt...>) HWY_ATTR {
    (fn(std::integral_constant<int, kAt>()), ...);
  };
  call(std::make_integer_sequence<int, kCount>());
}

// 64 numbers as bf16.
struct Pairs {
  __m512i lower, upper;
};

// Looks up the numbers of 64 bytes. With zero points a byte is the difference of two integers, else
// it is a code, and its bits above the code make no difference.
template <int kStored, bool kHasZero>
class PairTable {
 public:
  explicit PairTable(const CodeFormat& format) {
    alignas(64) uint8_t low[128], high[128];
    for (uint32_t i = 0; i < 128; ++i) {
      const auto bits = std::bit_cast<uint32_t>(number_of(format, i));
      low[i] = static_cast<uint8_t>(bits >> 16);
      high[i] = static_cast<uint8_t>(bits >> 24);
    }
    low_ = _mm512_load_si512(low), low_of_64_ = _mm512_load_si512(low + 64);
    high_ = _mm512_load_si512(high), high_of_64_ = _mm512_load_si512(high + 64);
  }

  HWY_INLINE Pairs at(__m512i bytes) const {
    __m512i low, high;
    if constexpr (kStored == 8) {  // The sign is not looked up.
      low = _mm512_permutex2var_epi8(low_, bytes, low_of_64_);
      high = _mm512_permutex2var_epi8(high_, bytes, high_of_64_);
      constexpr int kOrAnd = 0xf8;  // high | (bytes & signs)
      high =
          _mm512_ternarylogic_epi32(high, bytes, _mm512_set1_epi32(INT32_C(-0x7f7f7f80)), kOrAnd);
    } else {
      low = _mm512_permutexvar_epi8(bytes, low_);
      high = _mm512_permutexvar_epi8(bytes, high_);
    }
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }

 private:
  static float number_of(const CodeFormat& format, uint32_t byte) {
    if constexpr (kHasZero) {
      const auto difference = static_cast<int>(byte % 64);
      return static_cast<float>(difference < 32 ? difference : difference - 64);
    } else {
      return value_of_code(format, byte & ((1u << std::min(kStored, 7)) - 1));
    }
  }

  __m512i low_, high_, low_of_64_, high_of_64_;
};

#endif

// Returns by how much the numbers of a decoder are higher than those of the codes.
template <class Decoder>
constexpr bool kIsRaised = requires(const Decoder& decoder) {
  decoder.raise();
};
template <class Decoder>
float raise_of([[maybe_unused]] const Decoder& decoder) {
  if constexpr (kIsRaised<Decoder>) return decoder.raise();
  return 0;
}

// Calls fn(DECODER) with the fastest decoder of this processor, which is another one if zero points
// are subtracted.
template <int kStored, bool kHasZero, typename Fn>
void with_decoder_of(const CodeFormat& format, const Fn& fn) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kHasZero && kStored != 6) return fn(RaisedNumbers<kStored>(format));
  if constexpr (kStored == 8) {
    if (format.is_integer()) return fn(RaisedNumbers<kStored>(format));
  }
  if constexpr (kStored <= 4) return fn(TableNumbers<kStored>(format));
#endif
  constexpr int kBits = kBitsInLane<kStored>;
  if (!format.is_integer()) return fn(ComputedNumbers<kBits, FloatCodes>(format));
  return format.has_sign ? fn(IntegerNumbers<kBits, true>(format))
                         : fn(IntegerNumbers<kBits, false>(format));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_SCALED_CODES_INL_HPP
