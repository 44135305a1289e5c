// Tests norms against results worked out by hand.
#include "conformance/reference/vector_norm.hpp"

#include <gtest/gtest.h>

namespace bp::conformance::reference {
namespace {

using Values = std::vector<double>;

Array<double> matrix(Values values) {
  Array<double> x({2, 2});
  x.data = std::move(values);
  return x;
}

double norm_of_all(Values values, double p) {
  return norm(matrix(std::move(values)), {0, 1}, p, false)[0];
}

TEST(Norm, EachOrderHasItsOwn) {
  EXPECT_EQ(norm_of_all({3, -4, 0, 0}, 2), 5);
  EXPECT_EQ(norm_of_all({3, -4, 0, 1}, 1), 8);
  EXPECT_EQ(norm_of_all({3, -4, -0.0, 1}, 0), 3);
  EXPECT_EQ(norm_of_all({3, -4, 0, 1}, HUGE_VAL), 4);
  EXPECT_EQ(norm_of_all({3, -4, 2, 1}, -HUGE_VAL), 1);
  EXPECT_DOUBLE_EQ(norm_of_all({1, 4, 0, 0}, 0.5), 9);
  EXPECT_DOUBLE_EQ(norm_of_all({2, -2, 2, 2}, -1), 0.5);
  EXPECT_DOUBLE_EQ(norm_of_all({3, 4, 5, 0}, 3), 6);
}

TEST(Norm, ReducesItsAxes) {
  const Array<double> y = norm(matrix({3, 4, 6, 8}), {1}, 2, true);
  EXPECT_EQ(y.shape, (Shape{2, 1}));
  EXPECT_EQ(y.data, (Values{5, 10}));
  EXPECT_EQ(norm(matrix({3, -4, 6, 8}), {}, 2, false).data, (Values{3, 4, 6, 8}));
}

TEST(Norm, NeitherOverflowsNorVanishesOnTheWay) {
  EXPECT_DOUBLE_EQ(norm_of_all({3e300, 4e300, 0, 0}, 2), 5e300);
  EXPECT_DOUBLE_EQ(norm_of_all({3e-300, 4e-300, 0, 0}, 2), 5e-300);
}

TEST(Norm, KnowsZerosInfinitiesAndNan) {
  EXPECT_EQ(norm_of_all({0, 0, 0, 0}, 2), 0);
  EXPECT_EQ(norm_of_all({1, 0, 1, 1}, -1), 0);
  EXPECT_EQ(norm_of_all({1, -HUGE_VAL, 0, 0}, 2), HUGE_VAL);
  EXPECT_DOUBLE_EQ(norm_of_all({2, HUGE_VAL, 2, HUGE_VAL}, -1), 1);
  for (const double p : {1.0, 2.0, 3.0, HUGE_VAL, -HUGE_VAL, -1.0}) {
    EXPECT_TRUE(std::isnan(norm_of_all({1, std::nan(""), HUGE_VAL, 0}, p))) << p;
  }
  EXPECT_EQ(norm(Array<double>({0}), {0}, HUGE_VAL, false)[0], 0);
}

TEST(Norm, TheBoundOfASingleStepIsSmall) {
  Array<Bounded<24>> x({2});
  x.data = {3, 4};
  EXPECT_EQ(norm(x, {0}, HUGE_VAL, false)[0].error, 0);
  const Bounded<24> y = norm(x, {0}, 2, false)[0];
  EXPECT_GT(y.error, 0x1p-24);
  EXPECT_LT(y.error, 0x1p-17);
}

}  // namespace
}  // namespace bp::conformance::reference
