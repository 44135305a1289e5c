// The gradient of every op that has one, against central differences in f64, and the gradients of
// these gradients.
#include <gtest/gtest.h>

#include <set>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradcheck.hpp"
#include "runtime/autograd/record.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;

struct Case {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;
  TensorFunction function;
};

// Numbers in [0.3, 1.7), no two alike, so that nothing is at a kink or a tie.
Tensor sample(IntList shape, size_t salt) {
  std::vector<double> values(1);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  values.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double turn = 0.7548776662466927 * static_cast<double>(i + 1) +
                        0.5698402909980532 * static_cast<double>(salt + 1);
    values[i] = 0.3 + 1.4 * (turn - static_cast<double>(static_cast<int64_t>(turn)));
  }
  return from_host<double>(values, shape, test_device());
}

Tensor indices(const std::vector<int64_t>& values) {
  return from_host<int64_t>(values, {static_cast<int64_t>(values.size())}, test_device());
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"neg", {{3}}, [](Inputs x) { return neg(x[0]); }},
      {"exp", {{2, 3}}, [](Inputs x) { return exp(x[0]); }},
      {"log", {{4}}, [](Inputs x) { return log(x[0]); }},
      {"sqrt", {{4}}, [](Inputs x) { return sqrt(x[0]); }},
      {"relu", {{6}}, [](Inputs x) { return relu(x[0] - 1); }},
      {"relu_backward", {{6}}, [](Inputs x) { return relu_backward(x[0], sample({6}, 9) - 1); }},
      {"add", {{2, 3}, {3}}, [](Inputs x) { return add(x[0], x[1]); }},
      {"sub", {{2, 1}, {3}}, [](Inputs x) { return sub(x[0], x[1]); }},
      {"sub from a number", {{3}}, [](Inputs x) { return sub(2, x[0]); }},
      {"mul", {{2, 3}, {2, 1}}, [](Inputs x) { return mul(x[0], x[1]); }},
      {"mul by itself", {{3}}, [](Inputs x) { return mul(x[0], x[0]); }},
      {"div", {{2, 3}, {1, 3}}, [](Inputs x) { return div(x[0], x[1]); }},
      {"div of a number", {{3}}, [](Inputs x) { return div(2, x[0]); }},
      {"maximum", {{2, 3}, {3}}, [](Inputs x) { return maximum(x[0], x[1]); }},
      {"maximum with a number", {{6}}, [](Inputs x) { return maximum(x[0], 1); }},
      {"copy", {{3}}, [](Inputs x) { return copy(x[0].slice(0, 0, 3, 2), BP_F64); }},
      {"sum",
       {{2, 3, 2}},
       [](Inputs x) {
         return sum(x[0], {0, 2});
       }},
      {"sum, keepdims", {{2, 3}}, [](Inputs x) { return sum(x[0], {1}, true); }},
      {"mean", {{2, 3, 2}}, [](Inputs x) { return mean(x[0], {1}); }},
      {"amax", {{2, 3}}, [](Inputs x) { return amax(x[0], {1}); }},
      {"matmul", {{2, 3}, {3, 4}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul, batched",
       {{2, 1, 2, 3}, {3, 3, 2}},
       [](Inputs x) { return matmul(x[0], x[1].unsqueeze(0)); }},
      {"linear", {{2, 2, 3}, {4, 3}, {4}}, [](Inputs x) { return linear(x[0], x[1], x[2]); }},
      {"linear with relu",
       {{2, 3}, {4, 3}, {4}},
       [](Inputs x) { return linear(x[0], x[1] - 1, x[2], Activation::kRelu); }},
      {"linear without bias", {{2, 3}, {4, 3}}, [](Inputs x) { return linear(x[0], x[1]); }},
      {"convolution",
       {{2, 2, 4, 3}, {3, 2, 2, 2}, {3}},
       [](Inputs x) {
         return convolution(x[0], x[1], x[2], {2, 1}, {1, 0, 0, 1});
       }},
      {"convolution, grouped",
       {{1, 4, 5}, {4, 2, 2}},
       [](Inputs x) { return convolution(x[0], x[1], {}, {}, {}, {2}, 2); }},
      {"convolution_backward_input",
       {{1, 2, 3}, {2, 1, 2}},
       [](Inputs x) { return convolution_backward_input(x[0], x[1], {4}); }},
      {"convolution_backward_weight",
       {{1, 2, 3}, {1, 1, 4}},
       [](Inputs x) { return convolution_backward_weight(x[0], x[1], {2}); }},
      {"convolution_backward_bias",
       {{2, 3, 2}},
       [](Inputs x) { return convolution_backward_bias(x[0]); }},
      {"max_pool", {{1, 2, 4, 4}}, [](Inputs x) { return max_pool(x[0], {2}); }},
      {"softmax", {{2, 3}}, [](Inputs x) { return softmax(x[0], -1); }},
      {"softmax, first axis", {{2, 3}}, [](Inputs x) { return softmax(x[0], 0); }},
      {"log_softmax", {{2, 3}}, [](Inputs x) { return log_softmax(x[0], 1); }},
      {"cross_entropy",
       {{3, 4}},
       [](Inputs x) {
         return cross_entropy(x[0], indices({1, -100, 3}), -100, 0.1);
       }},
      {"cross_entropy, rows",
       {{2, 4}},
       [](Inputs x) {
         return cross_entropy(x[0], indices({0, 2}), -100, 0, Reduction::kNone);
       }},
      {"max_pool_backward",
       {{1, 1, 2, 2}},
       [](Inputs x) {
         Tensor chosen;
         max_pool(sample({1, 1, 4, 4}, 5), {2}, {}, {}, {}, &chosen);
         return max_pool_backward(x[0], chosen, {4, 4});
       }},
      {"cross_entropy_backward",
       {{}, {3, 4}},
       [](Inputs x) {
         // lse goes with x, as it does where the op stands for a gradient.
         const Tensor target = indices({1, -100, 3});
         Tensor lse;
         cross_entropy(x[1], target, -100, 0.1, Reduction::kMean, &lse);
         return cross_entropy_backward(x[0], x[1], target, lse, -100, 0.1, Reduction::kMean);
       }},
      {"embedding",
       {{4, 2}},
       [](Inputs x) {
         return embedding(x[0], indices({1, 3, 1}));
       }},
      {"embedding_backward",
       {{3, 2}},
       [](Inputs x) {
         return embedding_backward(x[0], indices({1, 3, 1}), 4);
       }},
      {"dropout", {{10}}, [](Inputs x) { return dropout(x[0], 11, 0, 0.4); }},
      {"dropout_backward", {{10}}, [](Inputs x) { return dropout_backward(x[0], 11, 0, 0.4); }},
      {"views",
       {{4, 6}},
       [](Inputs x) {
         return x[0].slice(1, 1, 6, 2)
                    .transpose()
                    .reshape({2, 6})
                    .narrow(1, 1, 3)
                    .expand({3, 2, 3}) *
                x[0].select(0, 2).narrow(0, 0, 3);
       }},
  };
  return all;
}

class Gradients : public testing::TestWithParam<size_t> {
 protected:
  static std::vector<Tensor> leaves(const Case& tested) {
    std::vector<Tensor> inputs;
    for (const std::vector<int64_t>& shape : tested.shapes) {
      inputs.push_back(sample(shape, inputs.size()).set_requires_grad());
    }
    return inputs;
  }
};

TEST_P(Gradients, AgreeWithCentralDifferences) {
  const DeviceGuard guard(test_device());
  const Case& tested = cases()[GetParam()];
  EXPECT_EQ(gradcheck(tested.function, leaves(tested)), "") << tested.name;
  EXPECT_EQ(gradgradcheck(tested.function, leaves(tested)), "") << tested.name << ", second order";
}

INSTANTIATE_TEST_SUITE_P(EveryOp, Gradients, testing::Range(size_t{0}, cases().size()),
                         [](const auto& tested) {
                           std::string name;
                           for (const char* c = cases()[tested.param].name; *c != '\0'; ++c) {
                             name += std::isalnum(*c) != 0 ? *c : '_';
                           }
                           return name;
                         });

// An op that the spec gives a gradient must stand above.
TEST(GradientCases, CoverEveryOpWithAGradient) {
  std::set<std::string> covered;
  for (const Case& tested : cases()) {
    covered.insert(
        std::string(tested.name).substr(0, std::string(tested.name).find_first_of(", ")));
  }
  for (const char* op : detail::kOpsWithGradient) EXPECT_EQ(covered.count(op), 1u) << op;
}

TEST(Gradcheck, FindsAWrongGradient) {
  const DeviceGuard guard(test_device());
  const std::vector<Tensor> inputs{sample({2}, 0).set_requires_grad()};
  const auto wrong = [](Inputs x) { return x[0] * x[0].detach(); };
  EXPECT_NE(gradcheck(wrong, inputs).find("input 0, element 0: the gradient is"),
            std::string::npos);
}

}  // namespace
}  // namespace bp
