// Tests the functions of formulas that the library of C++ computes, and those of whole numbers,
// against the goldens of the operators that have these functions as their formula.
#include "conformance/reference/library.hpp"

#include <gtest/gtest.h>

#include <string>

#include "conformance/reference/goldens.hpp"
#include "conformance/reference/primitives.hpp"

namespace bp::conformance {
namespace {

using Numbers = std::vector<double>;

// The function on each number type.
struct Function {
  const char* op;
  double (*in_doubles)(const Numbers& x);
  DoubleDouble (*in_two_doubles)(const Numbers& x);
  Bounded<53> (*bounded)(const Numbers& x);
};

#define BP_TEST_ROW(op, name)                                                         \
  {                                                                                   \
#op, [](const Numbers& x) { return primitive::name(x[0]); },                        \
   [](const Numbers& x) { return primitive::name(DoubleDouble(x[0])); },               \
   [](const Numbers& x) { return primitive::name(Bounded<53>(x[0])); } \
  }
#define BP_TEST_ROW_OF_TWO(op, name)                                                  \
  {                                                                                   \
#op, [](const Numbers& x) { return primitive::name(x[0], x[1]); },                  \
   [](const Numbers& x) { return primitive::name(DoubleDouble(x[0]), DoubleDouble(x[1])); }, \
   [](const Numbers& x) { return primitive::name(Bounded<53>(x[0]), Bounded<53>(x[1])); } \
  }

const Function kFunctions[] = {BP_TEST_ROW(exp2, exp2),
                               BP_TEST_ROW(expm1, expm1),
                               BP_TEST_ROW(log2, log2),
                               BP_TEST_ROW(log10, log10),
                               BP_TEST_ROW(log1p, log1p),
                               BP_TEST_ROW(sin, sin),
                               BP_TEST_ROW(cos, cos),
                               BP_TEST_ROW(tan, tan),
                               BP_TEST_ROW(asin, asin),
                               BP_TEST_ROW(acos, acos),
                               BP_TEST_ROW(atan, atan),
                               BP_TEST_ROW(sinh, sinh),
                               BP_TEST_ROW(cosh, cosh),
                               BP_TEST_ROW(asinh, asinh),
                               BP_TEST_ROW(acosh, acosh),
                               BP_TEST_ROW(atanh, atanh),
                               BP_TEST_ROW(erf, erf),
                               BP_TEST_ROW(erfc, erfc),
                               BP_TEST_ROW(floor, floor),
                               BP_TEST_ROW(ceil, ceil),
                               BP_TEST_ROW(trunc, trunc),
                               BP_TEST_ROW(round, round),
                               BP_TEST_ROW_OF_TWO(pow, pow),
                               BP_TEST_ROW_OF_TWO(atan2, atan2),
                               BP_TEST_ROW_OF_TWO(hypot, hypot),
                               BP_TEST_ROW_OF_TWO(fmod, fmod),
                               BP_TEST_ROW_OF_TWO(remainder, modulo),
                               BP_TEST_ROW_OF_TWO(floor_divide, floor_quotient)};

class Library : public testing::TestWithParam<Function> {};

TEST_P(Library, AgreesWithTheGoldensWithinItsBound) {
  const auto goldens = read_goldens(GOLDENS);
  const auto found = goldens.find(GetParam().op);
  ASSERT_NE(found, goldens.end());
  EXPECT_GE(found->second.size(), 40u);
  for (const Numbers& x : found->second) {
    const DoubleDouble wanted(x[x.size() - 2], x.back());
    const std::string where = GetParam().op + testing::PrintToString(x);
    const DoubleDouble y = GetParam().in_two_doubles(x);
    EXPECT_TRUE(is_golden(y, wanted, 0x1p-60 * std::fabs(wanted.hi) + 0x1p-1060)) << where << y.hi;
    const double error = std::fabs((DoubleDouble(GetParam().in_doubles(x)) - wanted).hi);
    if (!std::isfinite(error)) continue;
    EXPECT_LE(error, GetParam().bounded(x).error) << where;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Library, testing::ValuesIn(kFunctions),
                         [](const auto& tested) { return std::string(tested.param.op); });

TEST(LibraryFunctions, KeepTheSignOfZeroInTwoDoubles) {
  const DoubleDouble zero(-0.0);
  EXPECT_EQ(primitive::pow(zero, DoubleDouble(-1)).hi, -HUGE_VAL);
  EXPECT_NEAR(primitive::atan2(DoubleDouble(0), zero).hi, M_PI, 1e-15);
}

TEST(LibraryFunctions, HaveSlopes) {
  const double x = 0.3, step = 0x1p-20;
  const auto expect_slope = [&](auto function) {
    const double slope = function(Dual<double>(x, 1.0)).slope;
    EXPECT_NEAR(slope, (function(x + step) - function(x - step)) / (2 * step), 1e-9);
  };
  expect_slope([](auto y) { return primitive::sin(y); });
  expect_slope([](auto y) { return primitive::cos(y); });
  expect_slope([](auto y) { return primitive::tan(y); });
  expect_slope([](auto y) { return primitive::asin(y); });
  expect_slope([](auto y) { return primitive::acos(y); });
  expect_slope([](auto y) { return primitive::atan(y); });
  expect_slope([](auto y) { return primitive::asinh(y); });
  expect_slope([](auto y) { return primitive::acosh(y + decltype(y)(1)); });
  expect_slope([](auto y) { return primitive::atanh(y); });
  expect_slope([](auto y) { return primitive::sinh(y); });
  expect_slope([](auto y) { return primitive::cosh(y); });
  expect_slope([](auto y) { return primitive::exp2(y); });
  expect_slope([](auto y) { return primitive::expm1(y); });
  expect_slope([](auto y) { return primitive::log2(y); });
  expect_slope([](auto y) { return primitive::log10(y); });
  expect_slope([](auto y) { return primitive::log1p(y); });
  expect_slope([](auto y) { return primitive::pow(y, decltype(y)(2.5)); });
  expect_slope([](auto y) { return primitive::pow(decltype(y)(2.5), y); });
  expect_slope([](auto y) { return primitive::atan2(y, decltype(y)(2)); });
  expect_slope([](auto y) { return primitive::atan2(decltype(y)(2), y); });
  expect_slope([](auto y) { return primitive::hypot(y, decltype(y)(2)); });
}

TEST(LibraryFunctions, DivideIntegersAsNumbers) {
  for (int64_t a = -7; a <= 7; ++a) {
    for (int64_t b = -3; b <= 3; ++b) {
      const double quotient = static_cast<double>(a) / static_cast<double>(b);
      const int64_t down = b == 0 ? 0 : static_cast<int64_t>(std::floor(quotient));
      const std::string where = std::to_string(a) + " over " + std::to_string(b);
      EXPECT_EQ(primitive::floor_quotient(Integer(a), Integer(b)).value, down) << where;
      EXPECT_EQ(primitive::modulo(Integer(a), Integer(b)).value, b == 0 ? 0 : a - down * b)
          << where;
      EXPECT_EQ(primitive::fmod(Integer(a), Integer(b)).value, b == 0 ? 0 : a % b) << where;
    }
  }
  const Integer least(INT64_MIN);
  EXPECT_EQ(primitive::floor_quotient(least, Integer(-1)).value, INT64_MIN);
  EXPECT_EQ(primitive::floor_quotient(least, Integer(3)).value, INT64_MIN / 3 - 1);
  EXPECT_EQ(primitive::modulo(least, Integer(-1)).value, 0);
}

TEST(LibraryFunctions, ShiftsBeyondTheBitsGiveZeroOrTheSign) {
  EXPECT_EQ(primitive::shift_left(Integer(3), Integer(64)).value, 0);
  EXPECT_EQ(primitive::shift_left(Integer(3), Integer(-1)).value, 0);
  EXPECT_EQ(primitive::shift_right(Integer(-3), Integer(64)).value, -1);
  EXPECT_EQ(primitive::shift_right(Integer(3), Integer(-1)).value, 0);
  EXPECT_EQ(primitive::shift_right(Integer(-3), Integer(1)).value, -2);
}

}  // namespace
}  // namespace bp::conformance
