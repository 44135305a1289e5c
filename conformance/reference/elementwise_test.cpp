// Tests the oracles that are made from the spec's formulas. The goldens do not depend on these
// formulas.
#include "conformance/reference/elementwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/dual.hpp"
#include "conformance/numerics/integer.hpp"
#include "conformance/reference/goldens.hpp"

namespace bp::conformance::elementwise {
namespace {

struct Golden {
  std::vector<double> inputs;
  DoubleDouble result;
};

// Returns the goldens by the name of the op.
const std::map<std::string, std::vector<Golden>>& goldens() {
  static const auto all = [] {
    std::map<std::string, std::vector<Golden>> found;
    for (auto& [op, lines] : read_goldens(GOLDENS)) {
      for (std::vector<double>& numbers : lines) {
        const DoubleDouble result(numbers[numbers.size() - 2], numbers.back());
        numbers.resize(numbers.size() - 2);
        found[op].push_back({std::move(numbers), result});
      }
    }
    return found;
  }();
  return all;
}

template <typename N>
N value_at(uint32_t op, const Golden& golden) {
  N x[kMostInputs]{};
  for (size_t i = 0; i < golden.inputs.size(); ++i) x[i] = N(golden.inputs[i]);
  return value_of(op, x);
}

TEST(Elementwise, EveryOpHasGoldens) {
  for (const Row& row : kRows) {
    EXPECT_GE(goldens().at(name_of(row.op)).size(), 40u) << name_of(row.op);
  }
}

bool is_of_integers(const Row& row) {
  return row.dtypes == Dtypes::kIntegers || row.dtypes == Dtypes::kBits;
}

TEST(Elementwise, OraclesOfIntegersEqualTheGoldens) {
  for (const Row& row : kRows) {
    if (!is_of_integers(row)) continue;
    for (const Golden& golden : goldens().at(name_of(row.op))) {
      Integer x[kMostInputs];
      for (size_t i = 0; i < golden.inputs.size(); ++i) {
        x[i] = Integer(static_cast<int64_t>(golden.inputs[i]));
      }
      EXPECT_EQ(value_of(row.op, x).value, static_cast<int64_t>(golden.result.hi))
          << name_of(row.op) << "(" << testing::PrintToString(golden.inputs) << ")";
    }
  }
}

TEST(Elementwise, OraclesInTwoDoublesEqualTheGoldens) {
  for (const Row& row : kRows) {
    if (is_of_integers(row)) continue;
    for (const Golden& golden : goldens().at(name_of(row.op))) {
      const DoubleDouble y = value_at<DoubleDouble>(row.op, golden);
      const std::string where = name_of(row.op) + "(" + testing::PrintToString(golden.inputs) + ")";
      // Functions of the library are those of long double. A product near 2^-1022 keeps fewer
      // digits, or none.
      const double digits = row.uses_library ? 0x1p-60 : 0x1p-92;
      const double allowed = digits * std::fabs(golden.result.hi) + 0x1p-1060;
      EXPECT_TRUE(is_golden(y, golden.result, allowed))
          << where << " is " << y.hi << ", not " << golden.result.hi;
    }
  }
}

// The test runs in doubles, whose errors Bounded<53> has to cover.
TEST(Elementwise, BoundsCoverTheErrorOfTheSameStepsInDoubles) {
  for (const Row& row : kRows) {
    if (is_of_integers(row)) continue;
    for (const Golden& golden : goldens().at(name_of(row.op))) {
      const double y = value_at<double>(row.op, golden);
      const Bounded<53> bounded = value_at<Bounded<53>>(row.op, golden);
      if (!std::isfinite(y) || !std::isfinite(golden.result.hi)) continue;
      const double error = std::fabs((DoubleDouble(y) - golden.result).hi);
      EXPECT_LE(error, bounded.error)
          << name_of(row.op) << "(" << testing::PrintToString(golden.inputs) << ")";
    }
  }
}

TEST(Elementwise, GradientsAreTheSlopes) {
  for (double x = -9; x < 9; x += 0.37) {
    const Dual<double> at(x, 1.0);
    EXPECT_NEAR(silu_backward(1.0, x), silu(at).slope, 1e-14) << x;
    EXPECT_NEAR(sigmoid_backward(1.0, sigmoid(x)), sigmoid(at).slope, 1e-15) << x;
    EXPECT_NEAR(tanh_backward(1.0, tanh(x)), tanh(at).slope, 1e-15) << x;
    EXPECT_EQ(relu_backward(1.0, relu(x)), relu(at).slope) << x;
  }
}

TEST(Elementwise, GradientsHaveTheirLimitsFarOut) {
  for (const double x : {1e3, 1e30, 1e200}) {
    EXPECT_EQ(silu_backward(1.0, -x), 0) << x;
    EXPECT_EQ(silu_backward(1.0, x), 1) << x;
  }
}

TEST(Elementwise, NaNStaysWhereItMatters) {
  EXPECT_TRUE(std::isnan(relu(std::nan(""))));
  EXPECT_EQ(relu_backward(3.0, std::nan("")), 3);
  EXPECT_TRUE(std::isnan(maximum(1.0, std::nan(""))));
  EXPECT_TRUE(std::isnan(minimum(std::nan(""), 1.0)));
  EXPECT_TRUE(std::isnan(sigmoid(std::nan(""))));
  EXPECT_EQ(lt(std::nan(""), 0.0), 0);
  EXPECT_EQ(eq(std::nan(""), std::nan("")), 0);
}

TEST(Elementwise, IntegersWrap) {
  EXPECT_EQ(abs(Integer(INT64_MIN)).value, INT64_MIN);
  EXPECT_EQ(add(Integer(INT64_MAX), Integer(1)).value, INT64_MIN);
  EXPECT_EQ(neg(Integer(INT64_MIN)).value, INT64_MIN);
}

}  // namespace
}  // namespace bp::conformance::elementwise
