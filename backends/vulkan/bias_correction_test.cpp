// Tests the bias correction of Adam, whose text is both GLSL and C++, against the powers of the
// host's processor.
#include "backends/vulkan/kernels/bias_correction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace bp::vulkan {
namespace {

constexpr double kBetas[] = {0.0,  0x1p-60, 1e-9,  0.1,    0.5,      0.9,      0.95,
                             0.98, 0.99,    0.999, 0.9999, 0.999999, 0.9999999};

float correction(double beta, uint64_t step) {
  return corrections::correction_of(corrections::fraction_of(beta), step);
}

// The correction in more bits than f64 has. For small ones 1 - beta^step would lose bits.
long double exact(double beta, uint64_t step) {
  return -std::expm1(static_cast<long double>(step) * std::log(static_cast<long double>(beta)));
}

void expect_near_exact(double beta, uint64_t step) {
  const long double wanted = exact(beta, step);
  const float got = correction(beta, step);
  // Half an ulp of f32, and a thousandth more for the errors of the power.
  const long double most = 0.501L * std::ldexp(1.0L, std::ilogb(static_cast<float>(wanted)) - 23);
  EXPECT_LE(std::fabs(got - wanted), most) << beta << " to the power of " << step;
}

TEST(BiasCorrection, IsRoundedToTheNearestF32) {
  for (const double beta : kBetas) {
    for (uint64_t step = 1; step <= 2000; ++step) expect_near_exact(beta, step);
  }
}

TEST(BiasCorrection, IsRightForLateSteps) {
  std::mt19937_64 random(17);
  for (const double beta : kBetas) {
    for (int i = 0; i < 2000; ++i) expect_near_exact(beta, 1 + random() % 1'000'000'000);
  }
}

TEST(BiasCorrection, HasTheBitsOfF64ForTheUsualBetas) {
  for (const double beta : {0.9, 0.95, 0.99, 0.999}) {
    for (uint64_t step = 1; step <= 20000; ++step) {
      const auto wanted = static_cast<float>(1.0 - std::pow(beta, static_cast<double>(step)));
      ASSERT_EQ(correction(beta, step), wanted) << beta << " to the power of " << step;
    }
  }
}

TEST(BiasCorrection, IsZeroForStepsThatAreNotPositive) {
  EXPECT_EQ(correction(0.9, 0), 0.0F);
  EXPECT_EQ(correction(0.9, std::numeric_limits<uint64_t>::max()), 0.0F);
}

}  // namespace
}  // namespace bp::vulkan
