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

}  // namespace
}  // namespace bp::conformance::reference
