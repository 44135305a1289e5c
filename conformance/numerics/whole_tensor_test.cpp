#include "conformance/numerics/whole_tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/numerics/philox.hpp"

namespace bp::conformance {
namespace {

// Returns a number of either sign with 53 random bits, between 1 and 2 in magnitude.
double drawn(uint64_t i) {
  const uint64_t bits = element_bits(11, 0, i);
  const double value = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
  return (bits & 1) == 0 ? value : -value;
}

template <typename Round>
SignedBias bias_of(uint64_t count, const Round& round) {
  const Numerics numerics = resolve_numerics(nullptr, BP_F32);
  SignedBias bias;
  for (uint64_t i = 0; i < count; ++i) bias.add(BP_F32, round(drawn(i)), drawn(i), 0, numerics);
  return bias;
}

double toward_zero(double r) {
  const double nearest = round_to(BP_F32, r);
  return std::fabs(nearest) > std::fabs(r) ? next_after(BP_F32, nearest, 0) : nearest;
}

TEST(SignedBias, IsSmallWhereResultsAreRoundedToTheNearest) {
  const SignedBias bias = bias_of(4096, [](double r) { return round_to(BP_F32, r); });
  EXPECT_EQ(bias.count(), 4096u);
  EXPECT_FALSE(bias.is_suspicious()) << bias.mean();
  EXPECT_LT(std::fabs(bias.mean()), 0.05);
}

TEST(SignedBias, IsThatOfATruncatingStoreForBothSigns) {
  const SignedBias bias = bias_of(4096, toward_zero);
  EXPECT_TRUE(bias.is_suspicious());
  EXPECT_NEAR(bias.mean(), -1, 0.1) << "half a step toward zero, in units of half a step";
}

TEST(SignedBias, SaysNothingOfFewElements) {
  EXPECT_FALSE(bias_of(255, toward_zero).is_suspicious());
  EXPECT_TRUE(bias_of(256, toward_zero).is_suspicious());
  EXPECT_EQ(SignedBias().mean(), 0);
}

TEST(SignedBias, LeavesOutWhatHasNoDirection) {
  const Numerics numerics = resolve_numerics(nullptr, BP_F32);
  SignedBias bias;
  bias.add(BP_F32, HUGE_VAL, 1.0, 0, numerics);
  bias.add(BP_F32, std::nan(""), 1.0, 0, numerics);
  bias.add(BP_F32, 1.0, HUGE_VAL, 0, numerics);
  bias.add(BP_F32, 0x1p-149, 0.0, 0, numerics);
  EXPECT_EQ(bias.count(), 0u);
  Numerics flushing = numerics;
  flushing.flush_outputs = true;
  bias.add(BP_F32, 0, 0x1p-130, 0, flushing);
  EXPECT_EQ(bias.count(), 0u) << "what is flushed errs toward zero as declared";
  bias.add(BP_F32, 0, 0x1p-130, 0, numerics);
  EXPECT_EQ(bias.count(), 1u);
}

TEST(SignedBias, AllowsSumsTheErrorOfTheirTerms) {
  const Numerics numerics = resolve_numerics(nullptr, BP_F32);
  SignedBias bare, of_sums;
  for (uint64_t i = 0; i < 1000; ++i) {
    const double r = drawn(i), y = toward_zero(r);
    bare.add(BP_F32, y, r, 0, numerics);
    of_sums.add(BP_F32, y, r, 1000, numerics);
  }
  EXPECT_TRUE(bare.is_suspicious());
  EXPECT_FALSE(of_sums.is_suspicious());
}

Trust trust_in(const std::vector<double>& values) {
  Trust trust;
  for (const double value : values) trust.add(value);
  return trust;
}

TEST(Trust, NeedsValuesThatDifferAndAreMostlyNotZero) {
  EXPECT_FALSE(trust_in({1, 2, 3}).is_mistrusted());
  EXPECT_TRUE(trust_in({2, 2, 2}).is_mistrusted());
  EXPECT_TRUE(trust_in({0, 0, 1}).is_mistrusted());
  EXPECT_FALSE(trust_in({0, 0, 1, 2}).is_mistrusted()) << "one half is not more than one half";
  EXPECT_TRUE(trust_in({-0.0, 0, 1}).is_mistrusted());
  EXPECT_DOUBLE_EQ(trust_in({0, 0, 0, 1}).zero_share(), 0.75);
}

TEST(Trust, AsksNothingOfOneValueOrNone) {
  EXPECT_FALSE(trust_in({}).is_mistrusted());
  EXPECT_FALSE(trust_in({0}).is_mistrusted());
  EXPECT_EQ(trust_in({}).zero_share(), 0);
}

TEST(Trust, TakesNanForOneValue) {
  const double nan = std::nan("");
  EXPECT_TRUE(trust_in({nan, nan, nan}).is_mistrusted());
  EXPECT_FALSE(trust_in({nan, 1, nan}).is_mistrusted());
  EXPECT_FALSE(trust_in({1, nan}).is_mistrusted());
}

}  // namespace
}  // namespace bp::conformance
