#include "conformance/numerics/bounds.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/dtype.hpp"
#include "conformance/numerics/philox.hpp"
#include "conformance/numerics/product_errors.hpp"
#include "conformance/numerics/relaxed_row.hpp"
#include "conformance/reference/normalization.hpp"

namespace bp::conformance {
namespace {

TEST(Bounds, GrowWithTheSquareRootOfLongSums) {
  EXPECT_EQ(sum_growth(10), 12);
  EXPECT_EQ(sum_growth(10000), 800);
  const Numerics numerics = resolve_numerics(nullptr, BP_F32);
  EXPECT_NEAR(sum_bound(1, 10000, numerics), 800 * 0x1p-24, 1e-9);
  EXPECT_NEAR(linear_sum_bound(1, 10000, numerics), 10002 * 0x1p-24, 1e-9);
}

TEST(Bounds, FollowTheDeclaration) {
  const bp_numerics declared{.struct_size = sizeof(bp_numerics),
                             .struct_type = BP_STRUCT_NUMERICS,
                             .accumulator = BP_BF16,
                             .products = BP_PRODUCTS_TF32,
                             .rounding = BP_ROUNDING_FAITHFUL,
                             .flush = BP_FLUSH_OUTPUTS};
  const Numerics numerics = resolve_numerics(&declared, BP_F32);
  EXPECT_EQ(numerics.accumulator, 0x1p-8);
  EXPECT_EQ(numerics.product, 0x1p-10);
  EXPECT_TRUE(numerics.linear_growth);
  EXPECT_TRUE(numerics.faithful);
  EXPECT_TRUE(numerics.flush_outputs);
  EXPECT_FALSE(numerics.flush_inputs);
  EXPECT_EQ(resolve_numerics(nullptr, BP_F64).accumulator, 0x1p-53);
}

TEST(Bounds, OfProductsOfInputsFollowTheBitsThatProductsHold) {
  const auto error = [](uint32_t products, bp_dtype dtype) {
    const bp_numerics declared{.struct_size = sizeof(bp_numerics),
                               .struct_type = BP_STRUCT_NUMERICS,
                               .products = products};
    return input_product(dtype, resolve_numerics(&declared, dtype));
  };
  EXPECT_EQ(error(BP_PRODUCTS_NATIVE, BP_F32), 0);
  EXPECT_EQ(error(BP_PRODUCTS_TF32, BP_F32), 0x1p-10);
  EXPECT_EQ(error(BP_PRODUCTS_TF32, BP_F16), 0);
  EXPECT_EQ(error(BP_PRODUCTS_TF32, BP_BF16), 0);
  EXPECT_EQ(error(BP_PRODUCTS_BF16, BP_F16), 0x1p-7);
  EXPECT_EQ(error(BP_PRODUCTS_BF16, BP_BF16), 0);
  EXPECT_EQ(error(BP_PRODUCTS_BF16X3, BP_F16), 0x1.8p-15) << "of its second parts one product";
  EXPECT_EQ(error(BP_PRODUCTS_BF16X3, BP_BF16), 0);
}

TEST(Bounds, OfElementaryFunctionsAreUnitsInTheLastPlace) {
  const Numerics strict = resolve_numerics(nullptr, BP_F32);
  EXPECT_EQ(exp_bound(BP_F32, 0, 1, strict), 3 * 0x1p-23);
  EXPECT_EQ(exp_bound(BP_F64, 0, 1, strict), 2 * 0x1p-52);
  EXPECT_EQ(exp_bound(BP_F16, 0, 1, strict), 3 * 0x1p-23);  // The bound is in ulps of f32.
  EXPECT_EQ(divide_bound(BP_F32, 1, strict), 0);
  EXPECT_EQ(sqrt_bound(BP_F32, 1, strict), 0);
}

TEST(Bounds, AcceptAnHonestSumInF32) {
  constexpr int kCount = 4096;
  float total = 0;
  double exact = 0, magnitude = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const float x = static_cast<float>(element_bits(1, 0, i) >> 40) * 0x1p-23f - 1;
    total += x;
    exact += static_cast<double>(x);
    magnitude += std::fabs(static_cast<double>(x));
  }
  const double error = std::fabs(static_cast<double>(total) - exact);
  const Numerics numerics = resolve_numerics(nullptr, BP_F32);
  EXPECT_LT(error, sum_bound(magnitude, kCount, numerics));
  // A sum that lacks one term is far outside the bound.
  EXPECT_GT(magnitude / kCount, sum_bound(magnitude, kCount, numerics));
}

// Where a closed formula exists, the propagated bound agrees with it within a factor of four.
TEST(Bounds, PropagatedAndClosedFormulasAgreeForSoftmax) {
  for (const int count : {8, 67, 1031}) {
    std::vector<Bounded<24>> row;
    std::vector<double> x;
    for (int i = 0; i < count; ++i) {
      x.push_back(static_cast<double>(element_bits(3, 0, static_cast<uint64_t>(i)) >> 11) *
                      0x1p-53 * 4 -
                  2);
      row.emplace_back(x.back());
    }
    const auto propagated = reference::softmax(std::span<const Bounded<24>>(row));
    const auto propagated_log = reference::log_softmax(std::span<const Bounded<24>>(row));
    std::vector<double> r, r_log;
    for (const auto& value : propagated) r.push_back(value.value);
    for (const auto& value : propagated_log) r_log.push_back(value.value);
    const auto closed = softmax_bounds(x, r, BP_F32);
    const auto closed_log = log_softmax_bounds(x, r_log, BP_F32);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_LT(propagated[i].error, 4 * closed[i]);
      EXPECT_GT(propagated[i].error, closed[i] / 4);
      EXPECT_LT(propagated_log[i].error, 4 * closed_log[i]);
      EXPECT_GT(propagated_log[i].error, closed_log[i] / 4);
    }
  }
}

// exp of relaxed math is off by 2 abs(x) ulps more. By exp2 of a rounded product, it is off by
// about one ulp for each unit of x.
TEST(Bounds, OfASoftmaxTakeARelaxedExpIfItIsDeclared) {
  const std::vector<double> x = {0, -17.3, -41.7, -60.9};
  double total = 0, close_total = 0;
  const auto close = [](double value) {
    return std::exp2(static_cast<double>(static_cast<float>(value) * 1.44269504F));
  };
  for (const double value : x) total += std::exp(value);
  for (const double value : x) close_total += close(value);
  const RelaxedRow more = relaxed_row(x, BP_F32, {.relaxed = true});
  for (size_t i = 0; i < x.size(); ++i) {
    const double r = std::exp(x[i]) / total;
    EXPECT_LE(std::fabs(close(x[i]) / close_total - r), r * (more.relative[i] + 0x1p-23));
    EXPECT_LT(more.relative[i], 0x1p-14) << "a result that is off by more is wrong";
  }
  EXPECT_GT(more.relative[3], 200 * 0x1p-24);
  EXPECT_GE(more.log, 0x1p-21);
  EXPECT_EQ(relaxed_row(x, BP_F32, {}).relative, std::vector<double>(4));
  EXPECT_EQ(relaxed_row(x, BP_F64, {.relaxed = true}).relative, std::vector<double>(4));
}

// What is masked has a weight of exactly 0.
TEST(Bounds, OfARelaxedRowAreFiniteWhereElementsAreMasked) {
  const std::vector<double> x = {-HUGE_VAL, 1, -HUGE_VAL}, masked(2, -HUGE_VAL);
  EXPECT_EQ(relaxed_row(x, BP_F32, {.relaxed = true}).relative, std::vector<double>(3));
  EXPECT_EQ(relaxed_row(masked, BP_F32, {.relaxed = true}).relative, std::vector<double>(2));
}

// A ring that rounds to 16 bits at each hop is right. A ring that loses the last bits, or a rank's
// elements, is wrong.
TEST(Bounds, OfACollectiveAllowARoundingAtEachStepAndNoMore) {
  constexpr uint32_t kRanks = 8;
  int within = 0, without_rounding = 0, without_a_rank = 0;
  constexpr int kCount = 1000;
  for (uint64_t i = 0; i < kCount; ++i) {
    double exact = 0, ring = 0, cut = 0, last = 0;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      last = round_to(BP_BF16, 0.5 + std::ldexp(double(element_bits(7, rank, i) >> 11), -53));
      exact += last;
      ring = round_to(BP_BF16, ring + last);
      const double next = cut + last, unit = std::ldexp(1.0, std::ilogb(next) - 6);
      cut = std::floor(next / unit) * unit;  // This rounding loses one bit, towards zero.
    }
    const double bound = collective_bound(BP_BF16, kRanks, exact);
    within += std::fabs(ring - exact) <= bound;
    without_rounding += std::fabs(cut - exact) <= bound;
    without_a_rank += std::fabs(last) <= bound;
  }
  EXPECT_EQ(within, kCount);
  EXPECT_LT(without_rounding, kCount);
  EXPECT_LT(without_a_rank, kCount / 100);
}

// A sum beyond the largest number is infinite, and a result that is computed from it may be
// anything.
TEST(Bounded, LosesWhatFollowsAnOverflow) {
  const Bounded<24> large(3e38), small(2.0);
  const Bounded<24> sum = large + large;
  EXPECT_FALSE(sum.is_lost);
  for (const Bounded<24>& after : {sum * small, small + sum, small / sum, -(sum - small)}) {
    EXPECT_TRUE(after.is_lost) << after.value;
  }
  EXPECT_FALSE((small * small + small).is_lost);
  const Bounded<53> wide(3e38), two(2.0);
  EXPECT_FALSE(((wide + wide) * two).is_lost) << "f64 holds it";
}

TEST(Bounded, CoversTheErrorOfTheSameStepsInF32) {
  for (uint64_t i = 0; i < 500; ++i) {
    const auto draw = [&](uint32_t which) {
      return static_cast<float>(element_bits(5, which, i) >> 40) * 0x1p-24f + 0.25f;
    };
    const float a = draw(0), b = draw(1), c = draw(2);
    const float in_f32 = std::sqrt((a * b + c) / (a + 0.5f));
    const auto run = [&]<typename N>(N) {
      using std::sqrt;
      const N na(static_cast<double>(a)), nb(static_cast<double>(b)), nc(static_cast<double>(c));
      return sqrt((na * nb + nc) / (na + N(0.5)));
    };
    const Bounded<24> bounded = run(Bounded<24>());
    EXPECT_LE(std::fabs(static_cast<double>(in_f32) - run(double())), bounded.error);
    EXPECT_LT(bounded.error, 32 * 0x1p-24 * bounded.value);
  }
}

}  // namespace
}  // namespace bp::conformance
