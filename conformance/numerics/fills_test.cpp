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
  EXPECT_LE(at({FillKind::kCoord, 0, 0}, BP_BF16, 5000).hi, 256);  // Still exact.
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

}  // namespace
}  // namespace bp::conformance
