// Tests running sums and products against results worked out by hand.
#include "conformance/reference/scan.hpp"

#include <gtest/gtest.h>

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;

Array<double> matrix() {
  Array<double> x({2, 3});
  x.data = {1, 2, 3, 4, 5, 6};
  return x;
}

TEST(Scan, SumsRunAlongEitherAxis) {
  EXPECT_EQ(running_sums(matrix(), {.axis = 0}).data, (Values{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(running_sums(matrix(), {.axis = 1}).data, (Values{1, 3, 6, 4, 9, 15}));
}

TEST(Scan, ExclusiveResultsLackTheirOwnElement) {
  EXPECT_EQ(running_sums(matrix(), {.axis = 1, .is_exclusive = true}).data,
            (Values{0, 1, 3, 0, 4, 9}));
  EXPECT_EQ(running_products(matrix(), {.axis = 1, .is_exclusive = true}).data,
            (Values{1, 1, 2, 1, 4, 20}));
}

TEST(Scan, ReversedResultsBeginAtTheEnd) {
  EXPECT_EQ(running_sums(matrix(), {.axis = 1, .is_reverse = true}).data,
            (Values{6, 5, 3, 15, 11, 6}));
  EXPECT_EQ(running_products(matrix(), {.axis = 0, .is_exclusive = true, .is_reverse = true}).data,
            (Values{4, 5, 6, 1, 1, 1}));
}

TEST(Scan, TakesANumberWithoutAxes) {
  Array<double> x((Shape()));
  x.data = {7};
  EXPECT_EQ(running_sums(x, {}).data, Values{7});
  EXPECT_EQ(running_sums(x, {.is_exclusive = true}).data, Values{0});
}

TEST(Scan, IntegersWrap) {
  Array<Integer> x({2});
  x.data = {Integer(INT64_MAX), Integer(2)};
  EXPECT_EQ(running_sums(x, {}).data[1], Integer(INT64_MIN + 1));
  EXPECT_EQ(running_products(x, {}).data[1], Integer(-2));
}

TEST(Scan, BoundsGrowWithThePlaceInTheLine) {
  const AddedBounds sums = running_sum_bounds(matrix(), {.axis = 1}, Numerics());
  EXPECT_EQ(sums.magnitude, (Values{1, 3, 6, 4, 9, 15}));
  EXPECT_DOUBLE_EQ(sums.bounds[1], sum_bound(3, 2, Numerics()));
  const AddedBounds exclusive =
      running_sum_bounds(matrix(), {.axis = 1, .is_exclusive = true}, Numerics());
  EXPECT_EQ(exclusive.bounds[0], 0);
  const Array<double> y = running_products(matrix(), {.axis = 1});
  const ProductBounds products = running_product_bounds(matrix(), y, {.axis = 1}, Numerics());
  EXPECT_EQ(products.bounds[0], 0);
  EXPECT_DOUBLE_EQ(products.bounds[5], product_bound(120, 3, Numerics()));
}

TEST(Scan, ExtremesAreTheLastOfEqualElements) {
  Array<double> x({8});
  x.data = {-0.0, 0.0, -1, 2, 2, std::nan(""), 9, std::nan("")};
  const auto largest = running_extremes(x, 0, is_larger<double>);
  EXPECT_EQ(largest.indices.data, (std::vector<int64_t>{0, 1, 1, 3, 4, 5, 5, 7}));
  EXPECT_FALSE(std::signbit(largest.values[1]));
  EXPECT_TRUE(std::isnan(largest.values[6]));
  const auto smallest = running_extremes(x, 0, is_smaller<double>);
  EXPECT_EQ(smallest.indices.data, (std::vector<int64_t>{0, 1, 2, 2, 2, 5, 5, 7}));
  EXPECT_EQ(running_extremes(matrix(), 0, is_larger<double>).values.data, matrix().data);
}

TEST(Scan, LogarithmsOfSumsNeitherOverflowNorVanish) {
  Array<double> x({4});
  x.data = {-1000, -1000, 1000, 1000};
  const Array<double> y = running_logsumexps(x, {});
  EXPECT_DOUBLE_EQ(y[0], -1000);
  EXPECT_DOUBLE_EQ(y[1], -1000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(y[2], 1000);
  EXPECT_DOUBLE_EQ(y[3], 1000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(running_logsumexps(x, {.is_reverse = true})[3], 1000);
  x.data = {1, 2, 3, 4};
  const double sum = std::exp(1) + std::exp(2) + std::exp(3) + std::exp(4);
  EXPECT_DOUBLE_EQ(running_logsumexps(x, {})[3], std::log(sum));
}

TEST(Scan, LogarithmsOfSumsKnowInfinitiesAndNan) {
  Array<double> x({5});
  x.data = {-HUGE_VAL, -HUGE_VAL, 3, HUGE_VAL, std::nan("")};
  const Array<double> y = running_logsumexps(x, {});
  EXPECT_EQ(y[1], -HUGE_VAL);
  EXPECT_EQ(y[2], 3);
  EXPECT_EQ(y[3], HUGE_VAL);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_TRUE(std::isnan(running_logsumexps(x, {.is_reverse = true})[0]));
}

TEST(Scan, TheBoundOfALogarithmOfASumGrowsWithItsTerms) {
  Array<double> x({4});
  x.data = {-HUGE_VAL, 1, 1, 1};
  const auto bounds = running_logsumexp_bounds<Bounded<24>>(x, {}, Numerics());
  EXPECT_EQ(bounds[0], 0);
  EXPECT_GT(bounds[1], 0);
  EXPECT_GT(bounds[2], bounds[1]);
  EXPECT_GT(bounds[3], bounds[2]);
  EXPECT_LT(bounds[3], 1e-5);
}

}  // namespace
}  // namespace bp::conformance::reference
