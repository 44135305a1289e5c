// Compares the gradient of every op that has one with central differences in f64, and the gradients
// of these gradients too.
#include <gtest/gtest.h>

#include <cctype>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

class Gradients : public testing::TestWithParam<size_t> {};

TEST_P(Gradients, AgreeWithCentralDifferences) {
  const DeviceGuard guard(test_device());
  const GradientCase& tested = gradient_cases()[GetParam()];
  EXPECT_EQ(gradcheck(tested.function, tested.leaves()), "") << tested.name;
  if (tested.is_once) {
    EXPECT_THROW(gradgradcheck(tested.function, tested.leaves()), Error) << tested.name;
    return;
  }
  EXPECT_EQ(gradgradcheck(tested.function, tested.leaves()), "") << tested.name << ", second order";
}

INSTANTIATE_TEST_SUITE_P(EveryOp, Gradients, testing::Range(size_t{0}, gradient_cases().size()),
                         [](const auto& tested) {
                           std::string name;
                           for (const char* c = gradient_cases()[tested.param].name; *c != '\0';
                                ++c) {
                             name += std::isalnum(*c) != 0 ? *c : '_';
                           }
                           return name;
                         });

TEST(GradientCases, CoverEveryOpWithAGradient) {
  EXPECT_EQ(ops_without_gradient_case(), std::vector<std::string>());
}

TEST(Gradcheck, FindsAWrongGradient) {
  const DeviceGuard guard(test_device());
  const std::vector<Tensor> inputs{gradient_sample({2}, 0).set_requires_grad()};
  const auto wrong = [](Inputs x) { return x[0] * x[0].detach(); };
  EXPECT_NE(gradcheck(wrong, inputs).find("input 0, element 0: the gradient is"),
            std::string::npos);
}

}  // namespace
}  // namespace bp
