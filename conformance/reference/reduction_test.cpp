// Tests the oracles of the reductions, which are made from the spec's formulas, against goldens
// that do not depend on these formulas. Tests their bounds against kernels that are right and
// kernels that are wrong.
#include "conformance/reference/reduction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "conformance/numerics/accept.hpp"
#include "conformance/numerics/fills.hpp"
#include "conformance/reference/goldens.hpp"
#include "conformance/reference/reductions.hpp"

namespace bp::conformance::reference {
namespace {

using reductions::AllFormula, reductions::AmaxFormula, reductions::AminFormula,
    reductions::AnyFormula, reductions::CountNonzeroFormula, reductions::LogsumexpFormula,
    reductions::MeanFormula, reductions::ProdFormula, reductions::SumFormula;

template <typename N>
Array<N> tensor(Shape shape, std::vector<N> values) {
  Array<N> result(std::move(shape));
  result.data = std::move(values);
  return result;
}
template <typename N>
Array<N> line(const std::vector<double>& values) {
  Array<N> result(Shape{static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) result.data[i] = N(values[i]);
  return result;
}

// ---- Values ---------------------------------------------------------------------------------- //

TEST(Reduction, FollowsAxesAndKeepdims) {
  const Array<double> x = tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(reduced_by<SumFormula>(x, {0}, false).data, (std::vector<double>{5, 7, 9}));
  EXPECT_EQ(reduced_by<SumFormula>(x, {1}, true).shape, (Shape{2, 1}));
  EXPECT_EQ(reduced_by<SumFormula>(x, {1, 0}, false).data, (std::vector<double>{21}));
  EXPECT_EQ(reduced_by<MeanFormula>(x, {1}, false).data, (std::vector<double>{2, 5}));
  EXPECT_EQ(reduced_by<AmaxFormula>(x, {1}, false).data, (std::vector<double>{3, 6}));
  EXPECT_TRUE(std::isnan(reduced_by<MeanFormula>(line<double>({}), {0}, false)[0]));
  EXPECT_EQ(reduced_by<SumFormula>(line<double>({}), {0}, false)[0], 0);
}

TEST(Reduction, GivesEachElementItsResult) {
  const Shape shape = {2, 3, 2, 2};
  Array<double> x(shape);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(1, static_cast<int>(i));
  const Array<double> y = reduced_by<SumFormula>(x, {1, 3}, false);
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t c = 0; c < 2; ++c) {
      double total = 0;
      for (const int64_t b : {0, 1, 2}) {
        for (const int64_t d : {0, 1}) total += x[flat_index(Shape{a, b, c, d}, shape)];
      }
      EXPECT_EQ(y[a * 2 + c], total);
    }
  }
}

TEST(Reduction, OverNoAxesIsX) {
  EXPECT_TRUE(std::signbit(reduced_by<SumFormula>(line<double>({-0.0}), {}, false)[0]));
  EXPECT_TRUE(std::signbit(reduced_by<MeanFormula>(line<double>({-0.0}), {}, false)[0]));
  EXPECT_EQ(reduced_by<LogsumexpFormula>(line<double>({-3, 800}), {}, false).data,
            (std::vector<double>{-3, 800}));
}

TEST(Reduction, OfIntegersWraps) {
  const Array<Integer> x = tensor<Integer>({2}, {Integer(INT64_MAX), Integer(1)});
  EXPECT_EQ(reduced_by<SumFormula>(x, {0}, false)[0].value, INT64_MIN);
  const Array<Integer> least = tensor<Integer>({2}, {Integer(INT64_MIN), Integer(INT64_MIN)});
  EXPECT_EQ(reduced_by<AmaxFormula>(least, {0}, false)[0].value, INT64_MIN);
  const Array<Integer> largest = tensor<Integer>({2}, {Integer(INT64_MAX), Integer(INT64_MAX)});
  EXPECT_EQ(reduced_by<AminFormula>(largest, {0}, false)[0].value, INT64_MAX);
  EXPECT_EQ(reduced_by<ProdFormula>(largest, {0}, false)[0].value, 1);
}

TEST(Reduction, OfConditionsCounts) {
  const Array<double> x = tensor<double>({3, 3}, {0, -0.0, 0, 1, 0, std::nan(""), -1, 5e-324, 2});
  EXPECT_EQ(reduced_by<AnyFormula>(x, {1}, false).data, (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(reduced_by<AllFormula>(x, {1}, false).data, (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(reduced_by<CountNonzeroFormula>(x, {1}, false).data, (std::vector<double>{0, 2, 3}));
  EXPECT_EQ(reduced_by<CountNonzeroFormula>(x, {1, 0}, true).data, (std::vector<double>{5}));
  EXPECT_EQ(reduced_by<AnyFormula>(line<double>({}), {0}, false)[0], 0);
  EXPECT_EQ(reduced_by<AllFormula>(line<double>({}), {0}, false)[0], 1);
  EXPECT_EQ(reduced_by<AllFormula>(tensor<Integer>({2}, {Integer(1), Integer(0)}), {}, false)[1],
            Integer(0));
}

TEST(Reduction, OfFactorsNeitherOverflowsNorVanishesOnTheWay) {
  const std::vector<double> x = {1e300, 1e300, 1e-300, 1e-300};
  EXPECT_NEAR(reduced_by<ProdFormula>(line<double>(x), {0}, false)[0], 1, 1e-14);
  EXPECT_EQ(reduced_by<ProdFormula>(line<double>({}), {0}, false)[0], 1);
  EXPECT_TRUE(std::signbit(reduced_by<ProdFormula>(line<double>({-0.0, 3}), {0}, false)[0]));
}

// ---- Goldens --------------------------------------------------------------------------------- //

struct Golden {
  DoubleDouble result;
  std::vector<double> elements;
};

std::vector<Golden> goldens_of(uint32_t op) {
  static const auto all = read_goldens(GOLDENS);
  std::vector<Golden> found;
  for (const std::vector<double>& numbers : all.at(name_of(op))) {
    found.push_back({{numbers[0], numbers[1]}, {numbers.begin() + 2, numbers.end()}});
  }
  return found;
}

// Calls check(F()) for each formula.
template <typename Check>
void for_each_formula(Check check) {
  std::apply([&](auto... formula) { (check(formula), ...); }, reductions::Formulas());
}

double largest_magnitude(const std::vector<double>& elements) {
  double most = 0;
  for (const double x : elements) most = std::fmax(most, std::fabs(x));
  return most;
}

TEST(Reduction, OraclesInTwoDoublesEqualTheGoldens) {
  for_each_formula([]<typename F>(F) {
    EXPECT_GE(goldens_of(F::kRow.op).size(), 40u) << name_of(F::kRow.op);
    for (const Golden& golden : goldens_of(F::kRow.op)) {
      const auto y = reduced_by<F>(line<DoubleDouble>(golden.elements), {0}, false)[0];
      const double size = std::fabs(golden.result.hi) + largest_magnitude(golden.elements);
      EXPECT_TRUE(is_golden(y, golden.result, 0x1p-92 * size + 0x1p-1060))
          << name_of(F::kRow.op) << testing::PrintToString(golden.elements) << " is " << y.hi
          << ", not " << golden.result.hi;
    }
  });
}

// The test runs in doubles, whose errors the bounds for 53 bits have to cover.
TEST(Reduction, BoundsCoverTheErrorOfTheSameStepsInDoubles) {
  const Numerics numerics = resolve_numerics(nullptr, BP_F64);
  for_each_formula([&]<typename F>(F) {
    if constexpr (F::kRow.adds) {
      for (const Golden& golden : goldens_of(F::kRow.op)) {
        const Array<double> x = line<double>(golden.elements);
        const double y = reduced_by<F>(x, {0}, false)[0];
        if (!std::isfinite(y)) continue;
        const double bound = added_bounds<F, Bounded<53>>(x, {0}, numerics).bounds[0];
        const double error = std::fabs((DoubleDouble(y) - golden.result).hi);
        EXPECT_LE(error, bound) << name_of(F::kRow.op) << testing::PrintToString(golden.elements);
      }
    }
  });
}

// ---- Bounds of products ---------------------------------------------------------------------- //

// Returns whether the suite takes y as the product of x.
bool takes_product(double y, const std::vector<double>& x, bp_dtype dtype,
                   const Numerics& numerics) {
  const Array<DoubleDouble> factors = line<DoubleDouble>(x);
  const ProductBounds found = product_bounds<ProdFormula>(factors, {0}, numerics);
  const DoubleDouble exact = reduced_by<ProdFormula>(factors, {0}, false)[0];
  return found.is_lost[0] || accept(dtype, y, {exact, found.bounds[0]}, numerics);
}

// Multiplies in the dtype, in `lanes` products that are joined in the end.
double multiply(const std::vector<double>& x, bp_dtype dtype, size_t lanes) {
  std::vector<double> made(lanes, 1.0);
  for (size_t i = 0; i < x.size(); ++i) {
    double& lane = made[i % lanes];
    lane = round_to(dtype, lane * x[i]);
  }
  double product = 1;
  for (const double lane : made) product = round_to(dtype, product * lane);
  return product;
}

TEST(ProductBounds, TakeEveryOrder) {
  for (const bp_dtype dtype : {BP_F32, BP_F64}) {
    const Numerics numerics = resolve_numerics(nullptr, dtype);
    for (Golden& golden : goldens_of(BP_OP_PROD)) {
      for (double& x : golden.elements) x = round_to(dtype, x);
      for (const size_t lanes : {1u, 2u, 3u}) {
        const double y = multiply(golden.elements, dtype, lanes);
        EXPECT_TRUE(takes_product(y, golden.elements, dtype, numerics))
            << y << testing::PrintToString(golden.elements);
      }
    }
    for (const double range : {0.1, 0.5, 3.0, 40.0}) {
      for (const size_t count : {1u, 2u, 7u, 300u, 1031u}) {
        std::vector<double> x;
        for (uint64_t i = 0; i < count; ++i) {
          x.push_back(
              fill_element({FillKind::kLogUniform, -range, range}, dtype, count, 0, {i}).hi);
        }
        for (const size_t lanes : {1u, 4u, 64u}) {
          EXPECT_TRUE(takes_product(multiply(x, dtype, lanes), x, dtype, numerics))
              << count << " factors to 2^" << range << " in " << lanes << " lanes";
        }
      }
    }
  }
}

TEST(ProductBounds, RefuseWhatIsOffAndNarrowProducts) {
  for (const size_t count : {2u, 7u, 33u, 300u, 1031u}) {
    std::vector<double> x;
    for (uint64_t i = 0; i < count; ++i) {
      x.push_back(fill_element({FillKind::kLogUniform, -0.25, 0.25}, BP_F32, 3, 0, {i}).hi);
    }
    const double y = multiply(x, BP_F32, 1);
    for (const double factor : {1 - 0x1p-14, 1 + 0x1p-14}) {
      EXPECT_FALSE(takes_product(round_to(BP_F32, y * factor), x, BP_F32, Numerics{})) << count;
    }
    EXPECT_FALSE(takes_product(multiply(x, BP_F16, 16), x, BP_F32, Numerics{})) << count;
    x.pop_back();
    EXPECT_FALSE(takes_product(y, x, BP_F32, Numerics{})) << count;
  }
}

TEST(ProductBounds, TakeAnythingOnlyIfTheOrderDecides) {
  const auto is_lost = [](const std::vector<double>& x) {
    return static_cast<bool>(
        product_bounds<ProdFormula>(line<double>(x), {0}, Numerics{}).is_lost[0]);
  };
  const double infinity = HUGE_VAL;
  EXPECT_TRUE(is_lost({1e30, 1e30, 1e-30}));
  EXPECT_TRUE(is_lost({1e30, 1e30, 0}));           // Infinity times 0 is NaN.
  EXPECT_TRUE(is_lost({infinity, 1e-30, 1e-30}));  // So is 0 times infinity.
  EXPECT_FALSE(is_lost({1e30, 1e30, 2}));          // It is infinite in every order.
  EXPECT_FALSE(is_lost({1e-30, 1e-30, 0.5}));      // It vanishes in every order.
  EXPECT_FALSE(is_lost({infinity, 1e-30, 2}));
  EXPECT_FALSE(is_lost({infinity, 0x1p-149}));
  EXPECT_FALSE(is_lost({3e38}));
  EXPECT_FALSE(is_lost({0, 0, 1e38}));
}

// ---- Bounds ---------------------------------------------------------------------------------- //

std::vector<double> random(size_t count, double low, double high, uint64_t seed = 1) {
  std::vector<double> values;
  for (uint64_t i = 0; i < count; ++i) {
    values.push_back(fill_element({FillKind::kUniform, low, high}, BP_F32, seed, 0, {i}).hi);
  }
  return values;
}

TEST(ReductionBounds, OfSumsAreThoseOfTheirClass) {
  for (const size_t count : {1u, 7u, 300u, 4099u}) {
    const std::vector<double> x = random(count, -1, 1);
    double magnitude = 0, total = 0;
    for (const double value : x) magnitude += std::fabs(value), total += value;
    const auto n = static_cast<double>(count);
    const double of_sum = sum_bound(magnitude, n, Numerics{});
    const auto bound = [&]<typename F>(F) {
      return added_bounds<F, Bounded<24>>(line<double>(x), {0}, Numerics{}).bounds[0];
    };
    EXPECT_EQ(bound(SumFormula()), of_sum);
    // The mean needs one division more.
    EXPECT_GE(bound(MeanFormula()), of_sum / n);
    const double division = 5 * 0x1p-24 * (std::fabs(total) + of_sum) / n;
    EXPECT_LE(bound(MeanFormula()), of_sum / n + 1.001 * division + 0x1p-148);
  }
}

// A kernel that computes logsumexp in f32, and its faults.
struct Kernel {
  double exp_ulps = 0, log_ulps = 0;  // The errors of its functions.
  size_t lanes = 16;                  // The number of partial sums.
  bp_dtype sums = BP_F32;
  bool has_shift = true;
};

double off_by(double value, double ulps) {
  return round_to(BP_F32, std::isfinite(value) ? value + ulps * ulp(BP_F32, value) : value);
}

double run(const Kernel& kernel, const std::vector<double>& x) {
  double shift = kernel.has_shift ? x[0] : 0;
  for (const double value : x) shift = kernel.has_shift ? std::fmax(shift, value) : 0;
  std::vector<double> lanes(kernel.lanes);
  for (size_t i = 0; i < x.size(); ++i) {
    const double term = off_by(std::exp(round_to(BP_F32, x[i] - shift)), kernel.exp_ulps);
    double& lane = lanes[i % kernel.lanes];
    lane = round_to(kernel.sums, lane + term);
  }
  double total = 0;
  for (const double lane : lanes) total = round_to(kernel.sums, total + lane);
  return round_to(BP_F32, shift + off_by(std::log(total), kernel.log_ulps));
}

bool takes(double y, const std::vector<double>& x, bp_dtype dtype = BP_F32) {
  const Array<double> value = reduced_by<LogsumexpFormula>(line<double>(x), {0}, false);
  const AddedBounds found =
      added_bounds<LogsumexpFormula, Bounded<24>>(line<double>(x), {0}, Numerics{});
  return accept(dtype, round_to(dtype, y), {value[0], found.bounds[0]}, Numerics{});
}

struct Range {
  double low, high;
};
constexpr Range kRanges[] = {{-1, 1}, {-8, 8}, {800, 810}, {-810, -800}, {-400, 400}, {0.5, 0.5}};

TEST(ReductionBounds, TakeFunctionsThatAreOffAndSumsInBlocks) {
  for (const Range& range : kRanges) {
    for (const size_t count : {1u, 2u, 7u, 33u, 300u, 4099u}) {
      for (const double exp_ulps : {-3, 3}) {
        for (const double log_ulps : {-3, 3}) {
          for (const size_t lanes : {1u, 16u, 256u}) {
            const std::vector<double> x = random(count, range.low, range.high);
            EXPECT_TRUE(takes(run({exp_ulps, log_ulps, lanes}, x), x))
                << count << " elements from " << range.low << " in " << lanes << " lanes";
          }
        }
      }
    }
  }
}

TEST(ReductionBounds, RefuseWhatIsOffByTwentyBits) {
  for (const size_t count : {2u, 5u, 7u, 8u, 19u}) {
    const std::vector<double> x = random(count, -8, 8), far = random(count, 800, 810);
    for (const double factor : {1 - 0x1p-20, 1 + 0x1p-20}) {
      EXPECT_FALSE(takes(run({}, x) * factor, x)) << count;
      EXPECT_FALSE(takes(run({}, far) * factor, far)) << count;
    }
  }
}

TEST(ReductionBounds, RefuseSumsInNarrowTypes) {
  for (const size_t count : {33u, 300u, 1031u}) {
    const std::vector<double> x = random(count, -1, 1);
    for (const bp_dtype sums : {BP_F16, BP_BF16}) {
      EXPECT_FALSE(takes(run({.sums = sums}, x), x)) << count;
    }
  }
  // Elements and results of a narrow dtype hide less of a long sum.
  const std::vector<double> ones(1 << 16, 1.0);
  EXPECT_TRUE(takes(run({.sums = BP_F32}, ones), ones, BP_BF16));
  EXPECT_FALSE(takes(run({.sums = BP_BF16}, ones), ones, BP_BF16));
}

TEST(ReductionBounds, RefuseAMissingShift) {
  for (const Range& range : {kRanges[2], kRanges[3], kRanges[4]}) {
    const std::vector<double> x = random(19, range.low, range.high);
    EXPECT_FALSE(takes(run({.has_shift = false}, x), x)) << range.low;
  }
}

}  // namespace
}  // namespace bp::conformance::reference
