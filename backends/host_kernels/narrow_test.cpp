// Tests every value of the 16-bit floats, and every point where the rounded value changes. The
// vectors of lanes-inl.hpp give the same bits on every target that runs on this machine.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/narrow_test.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include "backends/host_kernels/lanes-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void widen_lanes(const T* x, float* y, size_t n) {
  const ComputeTag<T> d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(load_lanes(d, x + i), d, y + i);
  }
  store_lanes_n(load_lanes_n(d, x + i, n - i), d, y + i, n - i);
}

template <typename T>
void narrow_lanes(const float* x, T* y, size_t n) {
  const ComputeTag<T> d;
  size_t i = 0;
  for (; i + 2 * hn::Lanes(d) <= n; i += 2 * hn::Lanes(d)) {
    store_two(load_lanes(d, x + i), load_lanes(d, x + i + hn::Lanes(d)), d, y + i);
  }
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    store_lanes(load_lanes(d, x + i), d, y + i);
  }
  store_lanes_n(load_lanes_n(d, x + i, n - i), d, y + i, n - i);
}

void widen_float16(const Float16* x, float* y, size_t n) { widen_lanes(x, y, n); }
void widen_bfloat16(const BFloat16* x, float* y, size_t n) { widen_lanes(x, y, n); }
void narrow_float16(const float* x, Float16* y, size_t n) { narrow_lanes(x, y, n); }
void narrow_bfloat16(const float* x, BFloat16* y, size_t n) { narrow_lanes(x, y, n); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace bp::kernels {
namespace {

HWY_EXPORT(widen_float16);
HWY_EXPORT(widen_bfloat16);
HWY_EXPORT(narrow_float16);
HWY_EXPORT(narrow_bfloat16);

template <typename T>
struct Format;

template <>
struct Format<Float16> {
  static constexpr int kFraction = 10, kBias = 15;
  static void widen(const Float16* x, float* y, size_t n) {
    HWY_DYNAMIC_DISPATCH(widen_float16)(x, y, n);
  }
  static void narrow(const float* x, Float16* y, size_t n) {
    HWY_DYNAMIC_DISPATCH(narrow_float16)(x, y, n);
  }
};

template <>
struct Format<BFloat16> {
  static constexpr int kFraction = 7, kBias = 127;
  static void widen(const BFloat16* x, float* y, size_t n) {
    HWY_DYNAMIC_DISPATCH(widen_bfloat16)(x, y, n);
  }
  static void narrow(const float* x, BFloat16* y, size_t n) {
    HWY_DYNAMIC_DISPATCH(narrow_bfloat16)(x, y, n);
  }
};

// Returns the value of finite `bits` by the definition of the format. For infinity it returns the
// next power of two, which is its value for rounding.
template <typename T>
double value_of(int bits) {
  using F = Format<T>;
  const int fraction = bits & ((1 << F::kFraction) - 1);
  const int exponent = (bits & 0x7fff) >> F::kFraction;
  const double significand = std::ldexp(fraction, -F::kFraction) + (exponent == 0 ? 0 : 1);
  const double magnitude = std::ldexp(significand, std::max(exponent, 1) - F::kBias);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <typename T>
constexpr int kInfinity = 0x7fff >> Format<T>::kFraction << Format<T>::kFraction;

template <typename T>
class NarrowTest : public ::testing::Test {
 protected:
  static bool is_nan(int bits) { return (bits & 0x7fff) > kInfinity<T>; }

  // Expects `bits` for x and for -x.
  template <typename From>
  static void expect_rounded(From x, int bits) {
    ASSERT_EQ(narrow<T>(x).bits, bits) << x;
    ASSERT_EQ(narrow<T>(-x).bits, bits | 0x8000) << -x;
  }

  // Checks both sides of the point from which the next value is nearer.
  template <typename From>
  static void expect_boundary(int bits) {
    const auto middle = static_cast<From>((value_of<T>(bits) + value_of<T>(bits + 1)) / 2);
    const From below = std::nextafter(middle, From{0});
    const From above = std::nextafter(middle, std::numeric_limits<From>::max());
    expect_rounded(below, bits);
    expect_rounded(middle, bits + (bits & 1));
    expect_rounded(above, bits + 1);
  }
};

using Formats = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(NarrowTest, Formats, );

TYPED_TEST(NarrowTest, WidensEveryValueExactly) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float wide = TypeParam{static_cast<uint16_t>(bits)}.to_f32();
    if (this->is_nan(bits)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      continue;
    }
    const bool is_finite = (bits & 0x7fff) < kInfinity<TypeParam>;
    const double magnitude =
        is_finite ? std::abs(value_of<TypeParam>(bits)) : std::numeric_limits<double>::infinity();
    ASSERT_EQ(std::abs(static_cast<double>(wide)), magnitude) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
  }
}

TYPED_TEST(NarrowTest, ReturnsEveryValueToItsBits) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float wide = TypeParam{static_cast<uint16_t>(bits)}.to_f32();
    const int back = narrow<TypeParam>(wide).bits;
    const int back64 = narrow<TypeParam>(static_cast<double>(wide)).bits;
    if (this->is_nan(bits)) {
      ASSERT_TRUE(this->is_nan(back) && this->is_nan(back64)) << bits;
    } else {
      ASSERT_EQ(back, bits);
      ASSERT_EQ(back64, bits);
    }
  }
}

TYPED_TEST(NarrowTest, RoundsToNearestEvenAroundEveryBoundary) {
  for (int bits = 0; bits < kInfinity<TypeParam>; ++bits) {
    this->template expect_boundary<float>(bits);
    this->template expect_boundary<double>(bits);
  }
}

TYPED_TEST(NarrowTest, RoundsWhatIsFarOutsideToInfinityAndZero) {
  this->expect_rounded(std::numeric_limits<float>::max(), kInfinity<TypeParam>);
  this->expect_rounded(std::numeric_limits<double>::max(), kInfinity<TypeParam>);
  this->expect_rounded(std::numeric_limits<float>::infinity(), kInfinity<TypeParam>);
  this->expect_rounded(std::numeric_limits<double>::infinity(), kInfinity<TypeParam>);
  this->expect_rounded(std::numeric_limits<double>::denorm_min(), 0);
  this->expect_rounded(0.0f, 0);
}

TYPED_TEST(NarrowTest, KeepsANaNWhosePayloadIsDropped) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu}) {
    EXPECT_TRUE(this->is_nan(narrow<TypeParam>(std::bit_cast<float>(bits)).bits)) << bits;
  }
  EXPECT_TRUE(this->is_nan(narrow<TypeParam>(std::bit_cast<double>(0x7ff0000000000001u)).bits));
}

// The test runs all targets of this machine, including the scalar one.
TYPED_TEST(NarrowTest, HasVectorsThatGiveTheSameBitsOnEveryTarget) {
  std::vector<TypeParam> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  // The samples are taken with a stride that is prime to 2^32, and around every boundary.
  std::vector<float> samples;
  constexpr float kMost = std::numeric_limits<float>::max();
  for (uint64_t i = 0; i < uint64_t{1} << 32; i += 4093) {
    samples.push_back(std::bit_cast<float>(static_cast<uint32_t>(i)));
  }
  for (int bits = 0; bits < kInfinity<TypeParam>; ++bits) {
    const auto middle =
        static_cast<float>((value_of<TypeParam>(bits) + value_of<TypeParam>(bits + 1)) / 2);
    for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, kMost)}) {
      samples.insert(samples.end(), {x, -x});
    }
  }
  samples.resize(samples.size() / 64 * 64 + 3);  // The last vector is not full.

  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::GetChosenTarget().Update(target);
    std::vector<float> wide(all.size());
    Format<TypeParam>::widen(all.data(), wide.data(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const float expected = all[i].to_f32();
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << hwy::TargetName(target) << " " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected))
            << hwy::TargetName(target) << " " << i;
      }
    }
    std::vector<TypeParam> rounded(samples.size());
    Format<TypeParam>::narrow(samples.data(), rounded.data(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      ASSERT_EQ(rounded[i].bits, narrow<TypeParam>(samples[i]).bits)
          << hwy::TargetName(target) << " " << samples[i];
    }
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(LanesTest, TouchesNoElementBehindTheCount) {
  const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::GetChosenTarget().Update(target);
    for (size_t n = 0; n <= 8; ++n) {
      BFloat16 y[9] = {};
      HWY_DYNAMIC_DISPATCH(narrow_bfloat16)(x, y, n);
      for (size_t i = 0; i < 9; ++i) EXPECT_EQ(y[i].to_f32(), i < n ? x[i] : 0.0f);
      float wide[9] = {};
      HWY_DYNAMIC_DISPATCH(widen_bfloat16)(y, wide, n);
      for (size_t i = 0; i < 9; ++i) EXPECT_EQ(wide[i], i < n ? x[i] : 0.0f);
    }
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace bp::kernels
#endif  // HWY_ONCE
