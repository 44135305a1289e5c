// Tests the number of every code of every quantised dtype, bit for bit, on every Highway target
// that runs on this machine: numbers_of(), and the decoders of products.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/codes_test.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/scaled_codes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Reads `count` codes that begin at `bit`.
void convert(bp_dtype dtype, const std::byte* codes, int64_t bit, int64_t bit_stride, int64_t count,
             float* to) {
  constexpr int64_t kPart = 256;
  const CodeFormat format = code_format(dtype);
  HWY_ALIGN uint8_t unpacked[kPart];
  HWY_ALIGN float numbers[kPart];
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t part = std::min(kPart, count - begin);
    read_codes(codes, bit + begin * bit_stride, bit_stride, part, format.bits, unpacked);
    numbers_of(format, part, unpacked, numbers);
    std::copy_n(numbers, part, to + begin);
  }
}

#if HWY_TARGET == HWY_SCALAR

void decode(bp_dtype dtype, const std::byte* codes, int64_t count, float* to) {
  convert(dtype, codes, 0, code_format(dtype).bits, count, to);
}
void decode_for_zeros(bp_dtype dtype, const std::byte* codes, int64_t count, float* to) {
  decode(dtype, codes, count, to);
}

#else

template <int kStored, class Decoder, int... kElement>
void decode_row(const Decoder& decoder, const std::byte* codes, int64_t count, float* to,
                std::integer_sequence<int, kElement...>) {
  constexpr int kBits = kBitsInLane<kStored>;
  const CodeRow<kStored> row(codes, count);
  for (int64_t k = 0; k < count; k += chunk_elements<kBits>()) {
    const auto prepared = decoder.prepare(row.at(k));
    const auto put = [&]<int kAt>(std::integral_constant<int, kAt>) HWY_ATTR {
      HWY_ALIGN float numbers[hn::MaxLanes(Floats())];
      hn::Store(decoder.template at<kAt>(prepared), Floats(), numbers);
      for (int64_t lane = 0; lane < lane_count(); ++lane) {
        const int64_t place = k + lane * kPerLane<kBits> + kAt;
        if (place < count) to[place] = numbers[lane];
      }
    };
    (put(std::integral_constant<int, kElement>()), ...);
  }
}

#if HWY_TARGET == HWY_AVX3_DL
template <int kStored>
void look_up_row(const CodeFormat& format, const std::byte* codes, int64_t count, float* to) {
  constexpr int kBits = kBitsInLane<kStored>, kSplits = 8 / kBits;
  const PairTable<kStored, false> table(format);
  const CodeRow<kStored> row(codes, count);
  for (int64_t k = 0; k < count; k += chunk_elements<kBits>()) {
    unrolled<kSplits>([&](auto split) HWY_ATTR {
      const Pairs pairs = table.at(_mm512_srli_epi32(row.at(k).raw, split * kBits));
      alignas(64) uint16_t numbers[2][32];
      _mm512_store_si512(numbers[0], pairs.lower);
      _mm512_store_si512(numbers[1], pairs.upper);
      for (int64_t byte = 0; byte < 64; ++byte) {
        const int64_t place = k + byte * kSplits + split;
        const uint32_t bits = numbers[byte % 16 / 8][byte / 16 * 8 + byte % 8];
        if (place < count) to[place] = std::bit_cast<float>(bits << 16);
      }
    });
  }
}
#endif

// Decodes as products with zero points do, or those without.
template <int kStored, bool kHasZero>
void decode_by_decoder(const CodeFormat& format, const std::byte* codes, int64_t count, float* to) {
  constexpr auto kElements = static_cast<int>(kPerLane<kBitsInLane<kStored> >);
  with_decoder_of<kStored, kHasZero>(format, [&](const auto& decoder) {
    decode_row<kStored>(decoder, codes, count, to, std::make_integer_sequence<int, kElements>());
    for (int64_t i = 0; i < count; ++i) to[i] -= raise_of(decoder);
  });
}

template <int kStored>
void decode_stored(bp_dtype dtype, const std::byte* codes, int64_t count, float* to) {
#if HWY_TARGET == HWY_AVX3_DL
  // Only integers of 8 bits are not looked up in tables of bytes.
  if (kStored != 8 || !code_format(dtype).is_integer()) {
    return look_up_row<kStored>(code_format(dtype), codes, count, to);
  }
#endif
  decode_by_decoder<kStored, false>(code_format(dtype), codes, count, to);
}

void decode_for_zeros(bp_dtype dtype, const std::byte* codes, int64_t count, float* to) {
  const CodeFormat format = code_format(dtype);
  if (format.bits == 2) return decode_by_decoder<2, true>(format, codes, count, to);
  if (format.bits == 4) return decode_by_decoder<4, true>(format, codes, count, to);
  decode_by_decoder<8, true>(format, codes, count, to);
}

void decode(bp_dtype dtype, const std::byte* codes, int64_t count, float* to) {
  switch (code_format(dtype).bits) {
    case 2:
      return decode_stored<2>(dtype, codes, count, to);
    case 4:
      return decode_stored<4>(dtype, codes, count, to);
    case 6:
      return decode_stored<6>(dtype, codes, count, to);
    default:
      return decode_stored<8>(dtype, codes, count, to);
  }
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace bp::kernels {
namespace {

HWY_EXPORT(convert);
HWY_EXPORT(decode);
HWY_EXPORT(decode_for_zeros);

// A float format by its definition. The magnitudes from `infinity` on, if it is not 0, are infinity
// and NaN, and `nan` alone is NaN.
struct Definition {
  bp_dtype dtype;
  int bits, fraction_bits, bias;
  uint32_t infinity = 0, nan = 0;
};
constexpr Definition kFloats[] = {{BP_F8E4M3FN, 8, 3, 7, 0, 0x7f},
                                  {BP_F8E5M2, 8, 2, 15, 0x7c},
                                  {BP_F6E2M3, 6, 3, 1},
                                  {BP_F6E3M2, 6, 2, 3},
                                  {BP_F4E2M1, 4, 1, 1}};

double value_of(const Definition& format, uint32_t code) {
  const uint32_t sign = 1u << (format.bits - 1), magnitude = code & (sign - 1);
  if (format.nan != 0 && magnitude == format.nan) return std::nan("");
  if (format.infinity != 0 && magnitude > format.infinity) return std::nan("");
  const int exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const double fraction =
      std::ldexp(magnitude & ((1u << format.fraction_bits) - 1), -format.fraction_bits);
  double value =
      std::ldexp(fraction + (exponent == 0 ? 0 : 1), std::max(exponent, 1) - format.bias);
  if (format.infinity != 0 && magnitude == format.infinity) value = HUGE_VAL;
  return (code & sign) != 0 ? -value : value;
}

double value_of(bp_dtype dtype, uint32_t code) {
  for (const Definition& format : kFloats) {
    if (format.dtype == dtype) return value_of(format, code);
  }
  if (dtype == BP_F8E8M0FNU)
    return code == 255 ? std::nan("") : std::ldexp(1, static_cast<int>(code) - 127);
  const bool has_sign = dtype == BP_I8 || dtype == BP_I4 || dtype == BP_I2;
  const int range = 1 << code_format(dtype).bits, number = static_cast<int>(code);
  return has_sign && number >= range / 2 ? number - range : number;
}

constexpr bp_dtype kCodes[] = {BP_I8,       BP_U8,     BP_I4,     BP_U4,     BP_I2,    BP_U2,
                               BP_F8E4M3FN, BP_F8E5M2, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1};

constexpr size_t kIntegerCount = 6;  // They come first.

// Codes one after the other, with a step that meets every pair of lane and code.
class Codes : public ::testing::TestWithParam<bp_dtype> {
 protected:
  static constexpr int64_t kCount = 4 * 997;

  uint32_t code_at(int64_t i) const {
    return static_cast<uint32_t>(i * 5 + i / 256) & ((1u << bits_) - 1);
  }
  std::vector<std::byte> packed(int64_t bit, int64_t bit_stride) const {
    std::vector<std::byte> bytes(static_cast<size_t>((bit + kCount * bit_stride) / 8 + 1));
    for (int64_t i = 0; i < kCount; ++i) {
      write_code(bytes.data(), bit + i * bit_stride, bits_, code_at(i));
    }
    return bytes;
  }
  void expect_numbers(const std::vector<float>& numbers, const char* target) const {
    for (int64_t i = 0; i < kCount; ++i) {
      const double wanted = value_of(GetParam(), code_at(i));
      const float number = numbers[static_cast<size_t>(i)];
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(number)) << target << ", code " << code_at(i) << " at " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(number),
                  std::bit_cast<uint32_t>(static_cast<float>(wanted)))
            << target << ", code " << code_at(i) << " at " << i << " gave " << number;
      }
    }
  }
  // Calls check(name) with each target that this processor has.
  template <typename Check>
  static void for_each_target(const Check& check) {
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      check(hwy::TargetName(target));
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  int bits_ = code_format(GetParam()).bits;
};

class CodesOfFactors : public Codes {};
class CodesWithZeros : public Codes {};

TEST_P(Codes, ConvertToTheirNumbersFromEveryPlace) {
  for_each_target([&](const char* target) {
    for (const int64_t bit : {0, 8, 2 * bits_}) {
      for (const int64_t stride : {bits_, 3 * bits_}) {
        const std::vector<std::byte> bytes = packed(bit, stride);
        std::vector<float> numbers(kCount);
        HWY_DYNAMIC_DISPATCH(convert)
        (GetParam(), bytes.data(), bit, stride, kCount, numbers.data());
        expect_numbers(numbers, target);
      }
    }
  });
}

TEST_P(CodesOfFactors, AreDecodedInProducts) {
  for_each_target([&](const char* target) {
    const std::vector<std::byte> bytes = packed(0, bits_);
    std::vector<float> numbers(kCount);
    HWY_DYNAMIC_DISPATCH(decode)(GetParam(), bytes.data(), kCount, numbers.data());
    expect_numbers(numbers, target);
  });
}

TEST_P(CodesWithZeros, AreDecodedInProducts) {
  for_each_target([&](const char* target) {
    const std::vector<std::byte> bytes = packed(0, bits_);
    std::vector<float> numbers(kCount);
    HWY_DYNAMIC_DISPATCH(decode_for_zeros)(GetParam(), bytes.data(), kCount, numbers.data());
    expect_numbers(numbers, target);
  });
}

INSTANTIATE_TEST_SUITE_P(Factors, Codes, ::testing::ValuesIn(kCodes));
INSTANTIATE_TEST_SUITE_P(Scales, Codes, ::testing::Values(bp_dtype{BP_F8E8M0FNU}));
INSTANTIATE_TEST_SUITE_P(All, CodesOfFactors, ::testing::ValuesIn(kCodes));
INSTANTIATE_TEST_SUITE_P(Integers, CodesWithZeros,
                         ::testing::ValuesIn(kCodes, kCodes + kIntegerCount));

}  // namespace
}  // namespace bp::kernels
#endif
