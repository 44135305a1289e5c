#include "conformance/perf/ceiling_passes.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bp::conformance {
namespace {

Ceilings pass_of(double copy, double yardstick, double read = 20e9) {
  Ceilings pass;
  pass.copy_bytes_per_s = copy;
  pass.copy_yardstick_s = yardstick;
  pass.read_bytes_per_s = read;
  return pass;
}

TEST(CeilingPasses, AreTwoIfTheyAgree) {
  EXPECT_TRUE(needs_another({}));
  EXPECT_TRUE(needs_another({pass_of(10e9, 1e-3)}));
  EXPECT_FALSE(needs_another({pass_of(10e9, 1e-3), pass_of(10.2e9, 1e-3)}));
}

TEST(CeilingPasses, FollowWhileTwoDisagreeButNotForever) {
  std::vector<Ceilings> passes = {pass_of(10e9, 1e-3), pass_of(10e9, 1e-3, 25e9)};
  EXPECT_TRUE(needs_another(passes));
  passes.push_back(pass_of(10e9, 1e-3, 24.8e9));
  EXPECT_FALSE(needs_another(passes));
  passes = {pass_of(10e9, 1e-3, 1e9), pass_of(10e9, 1e-3, 2e9), pass_of(10e9, 1e-3, 4e9)};
  EXPECT_TRUE(needs_another(passes));
  passes.push_back(pass_of(10e9, 1e-3, 8e9));
  EXPECT_FALSE(needs_another(passes));
  EXPECT_NEAR(best_of_passes(passes).uncertainty_of("read"), std::log(2), 1e-12);
}

TEST(CeilingPasses, GiveTheBestWithTheYardstickOfTheSamePass) {
  const Ceilings best = best_of_passes({pass_of(10e9, 2e-3), pass_of(20e9, 1e-3)});
  EXPECT_EQ(best.copy_bytes_per_s, 20e9);
  EXPECT_EQ(best.copy_yardstick_s, 1e-3);
  EXPECT_NEAR(best.uncertainty_of("copy"), 0, 1e-12) << "a slower machine slowed both alike";
  EXPECT_NEAR(best_of_passes({pass_of(10e9, 9e-3), pass_of(20e9, 1e-3)}).uncertainty_of("copy"),
              std::log(4.5), 1e-12);
}

TEST(CeilingPasses, TakeSettledOnesAndTrustNoneThatStandsAlone) {
  Ceilings unsettled = pass_of(10e9, 1e-3, 30e9);
  unsettled.uncertainty["read"] = HUGE_VAL;
  const Ceilings one = best_of_passes({unsettled, pass_of(10e9, 1e-3)});
  EXPECT_EQ(one.read_bytes_per_s, 20e9);
  EXPECT_TRUE(std::isinf(one.uncertainty_of("read")));
  const Ceilings two = best_of_passes({pass_of(10e9, 1e-3), unsettled, pass_of(10e9, 1e-3)});
  EXPECT_EQ(two.uncertainty_of("read"), 0);
  EXPECT_TRUE(needs_another({unsettled, pass_of(10e9, 1e-3)}));
  EXPECT_FALSE(needs_another({unsettled, unsettled})) << "another would not settle either";
}

TEST(CeilingPasses, HaveTheProductsOfEachDtypeAndTheShortestLaunch) {
  Ceilings first, second;
  first.flops_per_s = {{"f32", 100e9}, {"f64", 50e9}};
  second.flops_per_s = {{"f32", 110e9}};
  first.batched_launch_s = 2e-6;
  second.batched_launch_s = 1e-6;
  const Ceilings best = best_of_passes({first, second});
  EXPECT_EQ(best.flops_per_s.at("f32"), 110e9);
  EXPECT_NEAR(best.uncertainty_of("matmul.f32"), std::log(1.1), 1e-12);
  EXPECT_EQ(best.flops_per_s.at("f64"), 50e9);
  EXPECT_TRUE(std::isinf(best.uncertainty_of("matmul.f64")));
  EXPECT_NEAR(best.batched_launch_s, 1e-6, 1e-18);
  EXPECT_NEAR(best.uncertainty_of("launch"), std::log(2), 1e-12);
}

}  // namespace
}  // namespace bp::conformance
