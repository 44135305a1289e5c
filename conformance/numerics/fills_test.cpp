#include "conformance/numerics/fills.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "conformance/numerics/whole_tensor.hpp"

namespace bp::conformance {
namespace {

DoubleDouble at(const Fill& fill, bp_dtype dtype, uint64_t index, uint64_t key = 11) {
  return fill_element(fill, dtype, key, 0, {index, 0, 0, 1});
}

TEST(Fills, ExactDenseHoldsNoZero) {
  std::set<double> seen;
  for (uint64_t i = 0; i < 1000; ++i) {
    const double value = at({FillKind::kExactDense, 1, 4}, BP_F32, i).hi;
    EXPECT_EQ(value, std::trunc(value));
    EXPECT_GE(std::fabs(value), 1);
    EXPECT_LE(std::fabs(value), 4);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Fills, CoordNamesEachElement) {
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(at({FillKind::kCoord, 0, 0}, BP_F32, i).hi, static_cast<double>(i + 1));
  }
  EXPECT_LE(at({FillKind::kCoord, 0, 0}, BP_BF16, 5000).hi, 256);  // The number is still exact.
}

TEST(Fills, OneHotHasOneOnePerRow) {
  for (int64_t row = 0; row < 7; ++row) {
    double total = 0;
    for (int64_t column = 0; column < 7; ++column) {
      total += fill_element({FillKind::kOneHot, 0, 0}, BP_F32, 1, 0, {0, row, column, 7}).hi;
    }
    EXPECT_EQ(total, 1);
  }
}

TEST(Fills, RandomHasMeanZeroAndDependsOnTheKey) {
  double total = 0;
  for (uint64_t i = 0; i < 4096; ++i) total += at({FillKind::kUniform, -1, 1}, BP_F32, i).hi;
  EXPECT_LT(std::fabs(total / 4096), 0.05);
  EXPECT_NE(at({FillKind::kUniform, -1, 1}, BP_F32, 3, 1).hi,
            at({FillKind::kUniform, -1, 1}, BP_F32, 3, 2).hi);
}

TEST(Fills, SpecialPairsMeetEachOther) {
  const size_t n = special_values(BP_F32).size();
  std::set<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < n * n; ++i) pairs.insert({i % n, i / n % n});
  EXPECT_EQ(pairs.size(), n * n);
  int nans = 0, infinities = 0, subnormals = 0;
  for (const DoubleDouble& value : special_values(BP_F32)) {
    nans += std::isnan(value.hi);
    infinities += std::isinf(value.hi);
    subnormals += value.hi != 0 && std::fabs(value.hi) < 0x1p-126;
  }
  EXPECT_EQ(nans, 1);
  EXPECT_EQ(infinities, 2);
  EXPECT_EQ(subnormals, 4);
}

TEST(SignedBias, SeesTruncationAndNotRounding) {
  const Numerics numerics;
  SignedBias rounded, truncated;
  for (uint64_t i = 0; i < 1024; ++i) {
    const DoubleDouble r = at({FillKind::kUniform, -1, 1}, BP_F64, i);
    rounded.add(BP_F32, round_to(BP_F32, r), r, 0, numerics);
    double cut = round_to(BP_F32, r);
    if (std::fabs(cut) > std::fabs(r.hi)) cut = next_after(BP_F32, cut, 0);
    truncated.add(BP_F32, cut, r, 0, numerics);
  }
  EXPECT_FALSE(rounded.is_suspicious());
  EXPECT_TRUE(truncated.is_suspicious());
  EXPECT_NEAR(truncated.mean(), -1, 0.1);
}

TEST(Trust, DoubtsConstantAndEmptyResults) {
  Trust constant, zeros, good;
  for (int i = 0; i < 10; ++i) {
    constant.add(3.0);
    zeros.add(i < 6 ? 0.0 : i);
    good.add(static_cast<double>(i));
  }
  EXPECT_TRUE(constant.is_mistrusted());
  EXPECT_TRUE(zeros.is_mistrusted());
  EXPECT_FALSE(good.is_mistrusted());
}

TEST(Fills, ExactWideNeedsEveryBit) {
  for (uint64_t i = 0; i < 1000; ++i) {
    const double wide = std::fabs(at({FillKind::kExactWide, 0, 13}, BP_F32, i).hi);
    EXPECT_EQ(std::fmod(wide, 2), 1);
    EXPECT_GT(wide, 4096);
    EXPECT_LT(wide, 8192);
    const double narrow = std::fabs(at({FillKind::kExactWide, 0, 13}, BP_BF16, i).hi);
    EXPECT_EQ(std::fmod(narrow, 2), 1);
    EXPECT_GT(narrow, 128);
    EXPECT_LT(narrow, 256);
    EXPECT_EQ(std::fabs(at({FillKind::kSign, 0, 0}, BP_F32, i).hi), 1);
  }
}

TEST(Fills, NthSpecialsMeetEveryTriple) {
  const auto n = static_cast<uint64_t>(special_values(BP_F16).size());
  std::set<std::vector<size_t>> triples;
  for (uint64_t i = 0; i < n * n * n; ++i) {
    std::vector<size_t> triple;
    for (const double power : {0.0, 1.0, 2.0}) {
      const DoubleDouble value = at({FillKind::kSpecialNth, power, 0}, BP_F16, i);
      std::byte bytes[8] = {};
      store_element(BP_F16, value, bytes);
      triple.push_back(element_bits_at(BP_F16, bytes));
    }
    triples.insert(triple);
  }
  EXPECT_EQ(triples.size(), n * n * n);
}

TEST(Fills, SparseSpecialsAreFew) {
  int specials = 0, nans = 0, infinities = 0;
  for (uint64_t i = 0; i < 2400; ++i) {
    const double value = at({FillKind::kSparse, -1, 1}, BP_F32, i).hi;
    nans += std::isnan(value);
    infinities += std::isinf(value);
    specials += !std::isfinite(value) || std::fabs(value) < 0x1p-120;
  }
  EXPECT_GT(specials, 120);
  EXPECT_LT(specials, 300);
  EXPECT_GT(nans, 0);
  EXPECT_GT(infinities, 0);
}

TEST(Fills, LogUniformCoversItsExponents) {
  double least = HUGE_VAL, most = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const double value = std::fabs(at({FillKind::kLogUniform, -30, 30}, BP_F32, i).hi);
    least = std::fmin(least, value);
    most = std::fmax(most, value);
  }
  EXPECT_GE(least, 0x1p-30);
  EXPECT_LT(least, 0x1p-27);
  EXPECT_GT(most, 0x1p27);
  EXPECT_LE(most, 0x1p30);
}

TEST(Fills, AllBitsAreAllValues) {
  EXPECT_EQ(at({FillKind::kAllBits, 0, 0}, BP_F16, 0x3c00).hi, 1);
  EXPECT_EQ(at({FillKind::kAllBits, 0, 0}, BP_F16, 0xfbff).hi, -65504);
  EXPECT_EQ(at({FillKind::kAllBits, 0, 0}, BP_BF16, 1).hi, 0x1p-133);
  const double nan = at({FillKind::kAllBits, 0, 0}, BP_BF16, 0xff81).hi;
  EXPECT_TRUE(std::isnan(nan));
  std::byte bytes[2] = {};
  store_element(BP_BF16, nan, bytes);
  EXPECT_EQ(element_bits_at(BP_BF16, bytes), 0xff81u);
}

}  // namespace
}  // namespace bp::conformance
