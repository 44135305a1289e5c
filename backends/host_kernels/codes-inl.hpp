// Reads the codes of quantised tensors, and turns them into numbers, a vector at a time. Every
// number is exact.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_CODES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_CODES_INL_HPP
#undef BACKPLANE_CPU_CODES_INL_HPP
#else
#define BACKPLANE_CPU_CODES_INL_HPP
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backends/host_kernels/quantized.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Sums = hn::ScalableTag<int32_t>;
using Words = hn::ScalableTag<uint32_t>;

// ---- Codes that are packed into bytes
// ------------------------------------------------------------

// Unpacks `count` codes of 4 bits, the first of which has the lower bits of a byte. It writes 32
// codes at a time as long as they fit, and returns how many it has written.
inline int64_t unpack_nibbles([[maybe_unused]] const uint8_t* HWY_RESTRICT from,
                              [[maybe_unused]] int64_t count,
                              [[maybe_unused]] uint8_t* HWY_RESTRICT to) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<uint8_t, 16> d;
  for (; i + 32 <= count; i += 32) {
    const auto bytes = hn::LoadU(d, from + i / 2);
    const auto lower = hn::And(bytes, hn::Set(d, 0xf));
    const auto upper = hn::And(hn::ShiftRight<4>(bytes), hn::Set(d, 0xf));
    hn::StoreU(hn::InterleaveLower(d, lower, upper), d, to + i);
    hn::StoreU(hn::InterleaveUpper(d, lower, upper), d, to + i + 16);
  }
#endif
  return i;
}

// Unpacks codes of 6 bits, four from three bytes.
inline int64_t unpack_sixes(const uint8_t* HWY_RESTRICT from, int64_t count,
                            uint8_t* HWY_RESTRICT to) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, from += 3) {
    const uint32_t word = from[0] | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16;
    const uint32_t codes =
        (word & 0x3f) | (word << 2 & 0x3f00) | (word << 4 & 0x3f0000) | (word << 6 & 0x3f000000);
    std::memcpy(to + i, &codes, sizeof(codes));
  }
  return i;
}

// Unpacks codes of 2 bits, four from a byte.
inline int64_t unpack_twos(const uint8_t* HWY_RESTRICT from, int64_t count,
                           uint8_t* HWY_RESTRICT to) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, ++from) {
    const uint32_t word = *from;
    const uint32_t codes = (word | word << 6 | word << 12 | word << 18) & 0x03030303;
    std::memcpy(to + i, &codes, sizeof(codes));
  }
  return i;
}

// Reads `count` codes, the first of which begins at `bit`.
inline void read_codes(const std::byte* base, int64_t bit, int64_t bit_stride, int64_t count,
                       int bits, uint8_t* HWY_RESTRICT to) {
  int64_t i = 0;
  if (bit_stride == bits && bit % 8 == 0) {
    const auto* const from = reinterpret_cast<const uint8_t*>(base) + bit / 8;
    if (bits == 2) i = unpack_twos(from, count, to);
    if (bits == 4) i = unpack_nibbles(from, count, to);
    if (bits == 6) i = unpack_sixes(from, count, to);
    if (bits == 8) i = std::copy_n(from, count, to) - to;
  }
  for (; i < count; ++i) {
    to[i] = static_cast<uint8_t>(read_code(base, bit + i * bit_stride, bits));
  }
}

// ---- Codes as numbers
// ----------------------------------------------------------------------------

// Turns codes of a float format that has a sign into numbers. The codes are in lanes of 32 bits,
// whose other bits are 0.
class FloatCodes {
 public:
  explicit FloatCodes(const CodeFormat& f)
      : sign_(1u << (f.bits - 1)),
        to_sign_(32 - f.bits),
        to_exponent_(23 - f.fraction_bits),
        rebias_(static_cast<uint32_t>(127 - f.bias) << 23),
        largest_(f.largest_code) {}

  // The exponent of a number gets the bias of f32. A subnormal number has no leading digit: it is
  // computed as the difference between two numbers of the smallest exponent.
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    constexpr uint32_t kOneExponent = 1u << 23, kAllExponents = 0xffu << 23;
    const Words d;
    const auto sign = hn::And(codes, hn::Set(d, sign_));
    const auto magnitude = hn::Xor(codes, sign);
    const auto digits = hn::ShiftLeftSame(magnitude, to_exponent_);
    const auto least = hn::Set(d, rebias_ + kOneExponent);
    const auto subnormal =
        hn::Sub(hn::BitCast(Floats(), hn::Add(digits, least)), hn::BitCast(Floats(), least));
    const auto normal = hn::Add(digits, hn::Set(d, rebias_));
    auto bits =
        hn::IfThenElse(hn::Lt(digits, hn::Set(d, kOneExponent)), hn::BitCast(d, subnormal), normal);
    const auto is_special = hn::Gt(magnitude, hn::Set(d, largest_));  // Infinity or NaN.
    bits = hn::Or(bits, hn::IfThenElseZero(is_special, hn::Set(d, kAllExponents)));
    return hn::BitCast(Floats(), hn::Or(bits, hn::ShiftLeftSame(sign, to_sign_)));
  }

 private:
  uint32_t sign_;
  int to_sign_, to_exponent_;
  uint32_t rebias_, largest_;
};

// Does it for f8e8m0fnu, whose codes are exponents.
class ExponentCodes {
 public:
  explicit ExponentCodes(const CodeFormat&) {}
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    constexpr uint32_t kLeast = 0x00400000, kNan = 0x7fc00000;  // 2^-127 is subnormal.
    const Words d;
    const auto power =
        hn::IfThenElse(hn::Eq(codes, hn::Zero(d)), hn::Set(d, kLeast), hn::ShiftLeft<23>(codes));
    return hn::BitCast(Floats(),
                       hn::IfThenElse(hn::Eq(codes, hn::Set(d, 255)), hn::Set(d, kNan), power));
  }
};

// Does it for integers.
class IntegerCodes {
 public:
  explicit IntegerCodes(const CodeFormat& f) : sign_(f.has_sign ? 1 << (f.bits - 1) : 0) {}
  HWY_INLINE hn::Vec<Floats> at(hn::Vec<Words> codes) const {
    const auto sign = hn::Set(Sums(), sign_);
    return hn::ConvertTo(Floats(), hn::Sub(hn::Xor(hn::BitCast(Sums(), codes), sign), sign));
  }

 private:
  int32_t sign_;
};

// Calls fn(CODES) for the class of a format.
template <typename Fn>
HWY_INLINE void with_codes_of(const CodeFormat& format, const Fn& fn) {
  if (format.is_integer()) return fn(IntegerCodes(format));
  return format.has_sign ? fn(FloatCodes(format)) : fn(ExponentCodes(format));
}

// Turns codes into numbers, in whole vectors: both arrays have room for them.
inline void numbers_of(const CodeFormat& format, int64_t count, const uint8_t* codes,
                       float* numbers) {
  with_codes_of(format, [&](const auto& values) HWY_ATTR {
    const hn::Rebind<uint8_t, Floats> byte_d;
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(Floats()))) {
      const auto code = hn::PromoteTo(Words(), hn::LoadU(byte_d, codes + i));
      hn::StoreU(values.at(code), Floats(), numbers + i);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_CODES_INL_HPP
