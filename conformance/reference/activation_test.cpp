// Tests transcendental functions in two doubles, activations against values worked out by hand, and
// gradients against differences.
#include "conformance/reference/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/numerics/bounds.hpp"
#include "conformance/reference/elementwise.hpp"

namespace bp::conformance::reference {
namespace {

constexpr double kTiny = 0x1p-98;

double distance(DoubleDouble a, DoubleDouble b) { return std::fabs((a - b).hi); }

TEST(Functions, HyperbolicTangentDoublesItsArgument) {
  for (const double x : {1e-30, 0.01, 0.124, 0.126, 0.3, 1.0, 5.0, 19.0}) {
    const DoubleDouble t = tanh(DoubleDouble(x));
    const DoubleDouble doubled = (t + t) / (DoubleDouble(1) + t * t);
    const DoubleDouble direct = tanh(DoubleDouble(2 * x));
    EXPECT_LE(distance(doubled, direct), kTiny * direct.hi) << x;
    EXPECT_NEAR(direct.hi, std::tanh(2 * x), 0x1p-51 * direct.hi) << x;
    EXPECT_TRUE(tanh(DoubleDouble(-x)) == -t);
  }
  EXPECT_EQ(tanh(DoubleDouble(HUGE_VAL)).hi, 1);
}

TEST(Functions, ErrorFunctionFollowsItsOtherSeries) {
  for (const double x : {1e-20, 0.1, 0.5, 1.0, 1.5}) {
    DoubleDouble power = x, sum = x;  // The term is (-1)^n x^(2n + 1) / (n! (2n + 1)).
    for (int n = 1; n < 60; ++n) {
      power = -(power * DoubleDouble(x) * DoubleDouble(x)) / DoubleDouble(n);
      sum = sum + power / DoubleDouble(2 * n + 1);
    }
    const DoubleDouble expected = DoubleDouble(2) / sqrt(kPi) * sum;
    EXPECT_LE(distance(erf(DoubleDouble(x)), expected), kTiny * expected.hi) << x;
  }
  for (const double x : {-7.0, -2.5, 3.5, 8.4, 30.0}) {
    EXPECT_NEAR(erf(DoubleDouble(x)).hi, std::erf(x), 0x1p-52) << x;
  }
}

TEST(Functions, ComplementOfTheErrorFunctionKeepsItsDigits) {
  for (const double x : {0.0, 0.5, 1.9, 2.0, 2.1, 3.5, 8.0, 20.0, 26.0}) {
    const double expected = std::erfc(x);
    EXPECT_NEAR(erfc(DoubleDouble(x)).hi, expected, 0x1p-50 * expected) << x;
  }
  // The series and the fraction agree, except for the digits that 1 - erf(x) loses.
  const DoubleDouble x = 2;
  EXPECT_LE(distance(DoubleDouble(1) - erf(x), erfc(x)), 0x1p-100);
  EXPECT_EQ(erfc(DoubleDouble(41)).hi, 0);
  EXPECT_TRUE(isnan(erfc(DoubleDouble(NAN))));
}

TEST(Functions, BoundsErfcOfAnInexactArgumentOnBothSides) {
  for (const double x : {-6.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 3.0}) {
    const double error = 0x1p-20;
    const Bounded<24> y = erfc(Bounded<24>(x, error));
    for (const double moved : {x - error, x + error}) {
      EXPECT_LE(std::fabs(std::erfc(moved) - std::erfc(x)), y.error) << x;
    }
    EXPECT_LE(y.error, 4 * error + 0x1p-20 * y.value) << x;
  }
}

TEST(Activation, GeluKeepsItsDigitsFarBelowZero) {
  for (const double x : {-0.5, -2.869063, -4.5, -5.2985473, -8.0, -13.0, -30.0}) {
    const auto expected = static_cast<double>(x * std::erfc(-x / std::sqrt(2.0L)) / 2);
    // In f64 the rounding of x / sqrt(2) is an error that grows with its square.
    EXPECT_NEAR(gelu(x, Gelu::kErf), expected, 0x1p-52 * (8 + x * x) * -expected) << x;
    EXPECT_NEAR(gelu(DoubleDouble(x), Gelu::kErf).hi, expected, 0x1p-45 * -expected) << x;
    // The bound is relative there, unless the result is subnormal.
    const double normal = 0x1p-126, u = 0x1p-24;
    EXPECT_LE(gelu_bound(BP_F32, x) - normal, u * -expected * (37 + 2 * x * x)) << x;
  }
}

TEST(Functions, SineAndCosineLieOnTheCircle) {
  for (int i = 0; i < 97; ++i) {
    const double turns = i / 97.0;
    const SineAndCosine at = sine_and_cosine(turns);
    EXPECT_LE(distance(at.sine * at.sine + at.cosine * at.cosine, 1), kTiny);
    EXPECT_NEAR(at.sine.hi, std::sin(2 * M_PI * turns), 1e-15);
    EXPECT_NEAR(at.cosine.hi, std::cos(2 * M_PI * turns), 1e-15);
  }
  EXPECT_EQ(sine_and_cosine(0.5).sine.hi, 0);
  EXPECT_EQ(sine_and_cosine(0.25).sine.hi, 1);
}

TEST(Activation, ValuesAreThoseOfTheDefinition) {
  EXPECT_NEAR(gelu(1.0, Gelu::kErf), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(gelu(1.0, Gelu::kTanh), 0.8411919906082768, 1e-15);
}

TEST(Activation, GradientsAreTheSlopes) {
  constexpr double kStep = 1e-5;
  for (const double x : {-6.0, -2.0, -0.7, 0.0, 0.3, 1.0, 4.0}) {
    const auto slope = [x](auto f) { return (f(x + kStep) - f(x - kStep)) / (2 * kStep); };
    for (const Gelu form : {Gelu::kErf, Gelu::kTanh}) {
      EXPECT_NEAR(gelu_backward(1.0, x, form), slope([form](double a) { return gelu(a, form); }),
                  1e-9);
    }
  }
}

TEST(Activation, GradientsHaveTheirLimitsFarOut) {
  for (const double x : {1e3, 1e30, 1e200, double{HUGE_VAL}}) {
    for (const Gelu form : {Gelu::kErf, Gelu::kTanh}) {
      EXPECT_EQ(gelu_backward(1.0, -x, form), 0) << x;
      EXPECT_EQ(gelu_backward(1.0, x, form), 1) << x;
    }
  }
}

void expect_within_factor(double closed, double propagated, double factor, double x) {
  EXPECT_LT(propagated, factor * closed) << x;
  EXPECT_GT(propagated, closed / factor) << x;
}

TEST(Activation, TheClosedBoundOfGeluAgreesWithThePropagatedOne) {
  for (double x = -7; x <= 7; x += 0.37) {
    if (std::fabs(x) < 0.5) continue;  // The closed form is wide where erf is small.
    expect_within_factor(gelu_bound(BP_F32, x), gelu(Bounded<24>(x), Gelu::kErf).error, 4, x);
  }
}

}  // namespace
}  // namespace bp::conformance::reference
