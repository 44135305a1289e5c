#include "runtime/autograd/split_backward.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/memory.hpp"
#include "backplane/runtime/nn.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using detail::SplitBackward;
using distributed::Bits;
using distributed::gradients_of;

class SplitBackwardTest : public testing::Test {
 protected:
  Tensor leaf(int64_t rows, int64_t columns, uint32_t seed) const {
    return distributed::input(rows, columns, seed).set_requires_grad();
  }

  // Returns the launches so far.
  uint64_t launches() const {
    bp_dispatch_statistics s{};
    s.struct_size = sizeof(s);
    s.struct_type = BP_STRUCT_DISPATCH_STATISTICS;
    check(bp_target_statistics(&device.target(), 0, &s), "target.statistics");
    return s.native_count + s.decomposed_count + s.host_fallback_count;
  }

  // Compares the halves with backward(), bit by bit.
  void expect_equal(nn::Module& model, const Tensor& x) const {
    const auto clear = [&] {
      for (const Tensor& p : model.parameters()) p.set_grad({});
    };
    clear();
    const Tensor whole = model(x);
    const Tensor gradient = distributed::input(whole.numel(), 1, 9).view(whole.shape());
    whole.backward(gradient);
    const Bits weights = gradients_of(model);
    const auto inputs = x.grad().to_vector<float>();
    clear();
    x.set_grad({});
    SplitBackward halves(model(x), x, gradient);
    EXPECT_EQ(halves.take_input_gradient().to_vector<float>(), inputs);
    EXPECT_FALSE(x.grad());
    for (const Tensor& p : model.parameters()) EXPECT_FALSE(p.grad());
    halves.run_weights();
    distributed::expect_equal_bits(gradients_of(model), weights);
    EXPECT_FALSE(x.grad());
  }

  Device device = test_device();
  DeviceGuard guard{device};
};

TEST_F(SplitBackwardTest, GivesTheGradientsOfBackward) {
  const auto model = distributed::small_model();
  expect_equal(*model, leaf(5, 7, 1));
}

TEST_F(SplitBackwardTest, GivesTheGradientsOfATransformerBlock) {
  nn::TransformerBlock block(16, 2, {.attention = {.causal = Causal::kTopLeft}});
  const Tensor x = from_host(distributed::numbers(2 * 6 * 16, 3), {2, 6, 16}).set_requires_grad();
  expect_equal(block, x);
}

// Its weight is used twice, once through an op that does not depend on x, and x is used twice.
class Tied : public nn::Module {
 public:
  Tied() : weight_(add_parameter("weight", distributed::input(4, 4, 2))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor doubled = exp(weight_ * 0.5);
    return matmul(matmul(x, weight_) + x, doubled) + doubled;
  }

 private:
  Tensor weight_;
};

TEST_F(SplitBackwardTest, GivesTheGradientsOfWeightsThatAreUsedTwice) {
  Tied model;
  expect_equal(model, leaf(4, 4, 5));
}

TEST_F(SplitBackwardTest, CallsTheHooksOfWeightsOnceInTheSecondHalf) {
  Tied model;
  const Tensor x = leaf(4, 4, 5), weight = model.parameters()[0];
  int calls = 0;
  const GradHook hook(weight, [&](const Tensor& hooked) {
    ++calls;
    EXPECT_TRUE(hooked.grad());
  });
  expect_equal(model, x);
  EXPECT_EQ(calls, 2) << "once by backward(), once by the halves";
}

TEST_F(SplitBackwardTest, DoesTheWorkOfALinearLayerOnce) {
  const auto model = distributed::small_model();
  const Tensor x = leaf(5, 7, 1), gradient = distributed::input(5, 3, 2);
  for (const Tensor& p : model->parameters()) p.set_grad(zeros_like(p));  // So that all are added.
  const Tensor whole = (*model)(x);
  uint64_t before = launches();
  grad({&whole, 1}, {&x, 1}, {&gradient, 1}, {.retain_graph = true});
  whole.backward(gradient);
  const uint64_t of_two_runs = launches() - before;
  x.set_grad(zeros_like(x));
  const Tensor again = (*model)(x);
  before = launches();
  again.backward(gradient);
  const uint64_t of_backward = launches() - before;
  const Tensor third = (*model)(x);
  before = launches();
  SplitBackward halves(third, x, gradient);
  const uint64_t of_inputs = launches() - before;
  halves.run_weights();
  const uint64_t of_halves = launches() - before;
  EXPECT_EQ(of_halves + 1, of_backward) << "the halves do not add to the gradient of x";
  EXPECT_LT(of_inputs, of_halves - of_inputs) << "each layer has two gradients of weights";
  EXPECT_GT(of_two_runs, of_halves);
}

TEST_F(SplitBackwardTest, DoesEverythingInTheSecondHalfWithoutAnInput) {
  const auto model = distributed::small_model();
  const Tensor x = distributed::input(5, 7, 1), gradient = distributed::input(5, 3, 2);
  (*model)(x).backward(gradient);
  const Bits want = gradients_of(*model);
  for (const Tensor& p : model->parameters()) p.set_grad({});
  const Tensor y = (*model)(x);
  const uint64_t before = launches();
  SplitBackward halves(y, {}, gradient);
  EXPECT_FALSE(halves.take_input_gradient());
  EXPECT_EQ(launches(), before);
  halves.run_weights();
  distributed::expect_equal_bits(gradients_of(*model), want);
}

TEST_F(SplitBackwardTest, FreesWhatWasSavedWithTheSecondHalf) {
  const auto model = distributed::small_model();
  const auto allocated = [&] { return memory_statistics(device).allocated_bytes; };
  const Tensor x = leaf(5, 7, 1), gradient = distributed::input(5, 3, 2);
  for (const Tensor& p : model->parameters()) p.set_grad(zeros_like(p));
  const uint64_t before = allocated();
  const Tensor y = (*model)(x);
  const uint64_t recorded = allocated();
  SplitBackward halves(y, x, gradient);
  EXPECT_GT(allocated(), before);
  halves.run_weights();
  EXPECT_LT(allocated(), recorded) << "y is left, and the gradient of x";
  EXPECT_THROW(y.backward(gradient), Error) << "the graph runs once";
}

TEST_F(SplitBackwardTest, RefusesAnInputOnWhichTheOutputDoesNotDepend) {
  const auto model = distributed::small_model();
  const Tensor x = leaf(5, 7, 1), other = leaf(5, 7, 2), gradient = distributed::input(5, 3, 2);
  EXPECT_THROW(SplitBackward((*model)(x), other, gradient), Error);
  EXPECT_THROW(SplitBackward((*model)(x), other * 2, gradient), Error);
}

}  // namespace
}  // namespace bp
