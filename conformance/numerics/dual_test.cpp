#include "conformance/numerics/dual.hpp"

#include <gtest/gtest.h>

#include "conformance/numerics/double_double.hpp"

namespace bp::conformance {
namespace {

using D = Dual<double>;

TEST(Dual, FollowsTheRulesOfDerivatives) {
  const D x(3, 1), y(2, 0);
  EXPECT_EQ((x + y).slope, 1);
  EXPECT_EQ((y - x).slope, -1);
  EXPECT_EQ((x * x).slope, 6);
  EXPECT_EQ((y / x).slope, -2.0 / 9);
  EXPECT_EQ((x / y).slope, 0.5);
  EXPECT_EQ(abs(-x).slope, 1);
  EXPECT_EQ(D(5.0).slope, 0);
}

TEST(Dual, DerivesFunctions) {
  const double at = 0.7, h = 1e-6;
  const auto expect = [&](auto dual, auto plain) {
    EXPECT_NEAR(dual(D(at, 1)).slope, (plain(at + h) - plain(at - h)) / (2 * h), 1e-9);
    EXPECT_EQ(dual(D(at, 1)).value, plain(at));
  };
  expect([](D x) { return sqrt(x); }, [](double x) { return std::sqrt(x); });
  expect([](D x) { return exp(x); }, [](double x) { return std::exp(x); });
  expect([](D x) { return log(x); }, [](double x) { return std::log(x); });
  expect([](D x) { return tanh(x); }, [](double x) { return std::tanh(x); });
  expect([](D x) { return erf(x); }, [](double x) { return std::erf(x); });
  expect([](D x) { return erfc(x); }, [](double x) { return std::erfc(x); });
  expect([](D x) { return erfinv(x); }, [](double x) { return erfinv(x); });
  expect([](D x) { return sin(x); }, [](double x) { return std::sin(x); });
  expect([](D x) { return cos(x); }, [](double x) { return std::cos(x); });
}

TEST(Dual, RunsOnWideNumbers) {
  const Dual<DoubleDouble> x(DoubleDouble(3), DoubleDouble(1));
  EXPECT_EQ((x * x / Dual<DoubleDouble>(2.0)).slope.hi, 3);
}

}  // namespace
}  // namespace bp::conformance
