#include "backplane/runtime/autograd.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/ops.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Doubles = std::vector<double>;

class Autograd : public testing::Test {
 protected:
  Tensor leaf(const Doubles& values) {
    return from_host<double>(values, {static_cast<int64_t>(values.size())}, device)
        .set_requires_grad();
  }

  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = leaf({1, 2, 3});
};

TEST_F(Autograd, AccumulatesInLeaves) {
  sum(x * x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{2, 4, 6}));
  sum(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{3, 5, 7}));
  x.set_grad({});
  EXPECT_FALSE(x.grad());
}

TEST_F(Autograd, AddsInPlaceSoThatHoldersOfTheGradientSeeIt) {
  sum(x).backward();
  const Tensor held = x.grad();
  sum(x).backward();
  EXPECT_EQ(held.to_vector<double>(), (Doubles{2, 2, 2}));
}

TEST_F(Autograd, DoesNotKeepAGradientThatItsGiverHolds) {
  const Tensor given = ones({3}, BP_F64);
  (x + 0).backward(given);
  given.fill(5);
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{1, 1, 1}));
}

TEST_F(Autograd, AddsWherePathsMeet) {
  const Tensor y = x * 2;
  sum(y * y + y).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{10, 18, 26}));
}

TEST_F(Autograd, SumsTheGradientOfBroadcastOperands) {
  const Tensor row = leaf({1, 2, 3});
  const Tensor column = from_host<double>({10, 20}, {2, 1}, device).set_requires_grad();
  sum(column * row).backward();
  EXPECT_EQ(row.grad().to_vector<double>(), (Doubles{30, 30, 30}));
  EXPECT_EQ(column.grad().to_vector<double>(), (Doubles{6, 6}));
  EXPECT_EQ(column.grad().shape(), IntList({2, 1}));
}

TEST_F(Autograd, GivesGradientsInTheDtypeOfTheInput) {
  const Tensor narrow = from_host<float>({1, 2, 3}, {3}, device).set_requires_grad();
  sum(narrow * x).backward();
  EXPECT_EQ(narrow.grad().dtype(), bp_dtype{BP_F32});
  EXPECT_EQ(x.grad().dtype(), bp_dtype{BP_F64});
}

TEST_F(Autograd, LeadsThroughNumbersOnEitherSide) {
  sum(6 / x - 2 * x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{-8, -3.5, -6.0 / 9 - 2}));
}

TEST_F(Autograd, RecordsOnlyWhatNeedsIt) {
  const Tensor plain = ones({3}, BP_F64);
  EXPECT_FALSE((plain + plain).requires_grad());
  EXPECT_TRUE((x + plain).requires_grad());
  EXPECT_FALSE((x == plain).requires_grad()) << "a comparison has no gradient";
  {
    const NoGradGuard no_grad;
    EXPECT_FALSE((x + plain).requires_grad());
    const GradModeGuard again(true);
    EXPECT_TRUE((x + plain).requires_grad());
  }
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_FALSE(x.detach().requires_grad());
}

TEST_F(Autograd, FreesWhatItSavedUnlessTold) {
  const Tensor y = sum(x * x);
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{4, 8, 12}));
  EXPECT_EQ(message_of([&] { y.backward(); }),
            "mul: what its gradient needs was freed by an earlier backward; pass retain_graph to "
            "that one");
}

TEST_F(Autograd, NoticesThatASavedTensorWasWritten) {
  const Tensor factor = ones({3}, BP_F64);
  const Tensor y = sum(x * factor);
  factor.slice(0, 0, 1).fill(2);
  EXPECT_EQ(message_of([&] { y.backward(); }),
            "mul: its gradient needs b as it was when the op ran, and b was written in place since "
            "(f64 (3,), write 1, saved at 0)");
}

TEST_F(Autograd, NoticesThatASavedResultWasWritten) {
  const Tensor y = exp(x);
  y.detach().fill(0);
  EXPECT_NE(message_of([&] { sum(y).backward(); }).find("exp: its gradient needs y"),
            std::string::npos);
}

TEST_F(Autograd, DoesNotMindWritesToWhatItDidNotSave) {
  const Tensor factor = ones({3}, BP_F64);
  const Tensor y = sum(x + factor);
  factor.fill(2);
  EXPECT_NO_THROW(y.backward());
}

TEST_F(Autograd, RefusesWritesInPlaceWhileRecording) {
  EXPECT_EQ(message_of([&] { add_out(x, x, 1); }),
            "add_out: a tensor requires a gradient, and writes in place are not recorded; put them "
            "under a bp::NoGradGuard");
  EXPECT_NE(message_of([&] { x.fill(1); }).find("fill: the tensor requires a gradient"),
            std::string::npos);
  const NoGradGuard no_grad;
  EXPECT_NO_THROW(add_out(x, x, 1));
}

TEST_F(Autograd, ExplainsAnOutputThatDependsOnNothing) {
  EXPECT_EQ(message_of([] { ones({1}, BP_F64).backward(); }),
            "backward: output 0 depends on nothing that requires a gradient");
  EXPECT_EQ(message_of([&] { (x * 2).backward(); }),
            "backward: output 0 has the shape (3,); allowed without a gradient: one element");
  EXPECT_NE(message_of([&] { (x * 2).backward(ones({2}, BP_F64)); }).find("gradient 0 is f64 (2,)"),
            std::string::npos);
}

TEST_F(Autograd, AsksForFloatLeaves) {
  EXPECT_EQ(message_of([] { arange(3, BP_I64).set_requires_grad(); }),
            "set_requires_grad: the dtype is i64; allowed: f16, bf16, f32, f64");
  EXPECT_EQ(message_of([&] { (x * 2).set_requires_grad(false); }),
            "set_requires_grad: the tensor is the result of mul; allowed: leaves. Use detach() "
            "first");
}

TEST_F(Autograd, GivesGradientsForResultsAndLeavesAlike) {
  const Tensor y = x * x;
  const std::vector<Tensor> gradients = grad(sum(y * 3), {x, y});
  EXPECT_EQ(gradients[0].to_vector<double>(), (Doubles{6, 12, 18}));
  EXPECT_EQ(gradients[1].to_vector<double>(), (Doubles{3, 3, 3}));
  EXPECT_FALSE(x.grad()) << "leaves are left alone";
}

TEST_F(Autograd, SaysWhenAnInputIsNotUsed) {
  const Tensor other = leaf({1});
  EXPECT_EQ(message_of([&] { grad(sum(x), {other}); }),
            "grad: the outputs do not depend on input 0; allowed with allow_unused");
  EXPECT_FALSE(grad(sum(x), {other}, {.allow_unused = true})[0]);
}

TEST_F(Autograd, DifferentiatesGradients) {
  const Tensor first = grad(sum(x * x * x), {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.to_vector<double>(), (Doubles{3, 12, 27}));
  const Tensor second = grad(sum(first), {x}, {.create_graph = true})[0];
  EXPECT_EQ(second.to_vector<double>(), (Doubles{6, 12, 18}));
  EXPECT_EQ(grad(sum(second), {x})[0].to_vector<double>(), (Doubles{6, 6, 6}));
}

TEST_F(Autograd, DifferentiatesThroughSavedResults) {
  const Tensor first = grad(sum(exp(x)), {x}, {.create_graph = true})[0];
  const Tensor second = grad(sum(first), {x})[0];
  EXPECT_EQ(second.to_vector<double>(), exp(x).to_vector<double>());
}

TEST_F(Autograd, AccumulatesAGraphOfGradients) {
  sum(x * x).backward({}, false, /*create_graph=*/true);
  const Tensor first = x.grad();
  x.set_grad({});
  sum(first * first).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{8, 16, 24}));
}

TEST_F(Autograd, DetachesFromTheGraph) {
  const Tensor y = x * x;
  sum(y.detach() * x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{1, 4, 9}));
}

TEST_F(Autograd, LeadsThroughViews) {
  const Tensor m = arange(6, BP_F64).reshape({2, 3});
  m.set_requires_grad();
  const Tensor weights = arange(6, BP_F64).reshape({3, 2});
  sum(m.transpose() * weights).backward();
  EXPECT_EQ(m.grad().to_vector<double>(), (Doubles{0, 2, 4, 1, 3, 5}));
  m.set_grad({});
  sum(m.slice(1, 0, 3, 2).select(0, 1).unsqueeze(0).expand({4, 2})).backward();
  EXPECT_EQ(m.grad().to_vector<double>(), (Doubles{0, 0, 0, 4, 0, 4}));
  EXPECT_NE(message_of([&] { m.as_strided({2}, {1}); }).find("as_strided: it has no gradient"),
            std::string::npos);
}

TEST_F(Autograd, SplitsTheGradientOfManyTensors) {
  std::vector<Tensor> parts;
  parts.reserve(40);
  for (int i = 0; i < 40; ++i) parts.push_back(i % 3 == 0 ? ones({1}, BP_F64) : x.narrow(0, 1, 1));
  const Tensor all = cat(parts, 0);
  sum(all * arange(40, BP_F64)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{0, 780 - 273, 0}));
}

TEST_F(Autograd, AsksForNoGradientThatIsNotNeeded) {
  const Tensor rows = ones({2, 3}, BP_F64);
  const Tensor gamma = leaf({1, 2, 3});
  sum(layer_norm(rows + arange(3, BP_F64), gamma)).backward();
  EXPECT_TRUE(gamma.grad());
  EXPECT_FALSE(rows.grad());
}

TEST_F(Autograd, GivesGradientsToEachOutput) {
  const Tensor rows = from_host<double>({1, 2, 4}, {1, 3}, device).set_requires_grad();
  const Tensor weight = ones({1, 3}, BP_F64);
  Tensor before;
  const Tensor y = linear(rows, weight, {}, Activation::kRelu, 0, &before);
  EXPECT_TRUE(before.requires_grad());
  sum(before * 2).backward({}, /*retain_graph=*/true);
  EXPECT_EQ(rows.grad().to_vector<double>(), (Doubles{2, 2, 2})) << "y has none, which is zeros";
  sum(y + before).backward();
  EXPECT_EQ(rows.grad().to_vector<double>(), (Doubles{4, 4, 4}));
}

TEST_F(Autograd, RefusesWhatHasNoGradient) {
  const Tensor q = ones({1, 1, 3, 2}, BP_F64);
  const Tensor bias = ones({1, 1, 3, 3}, BP_F64).set_requires_grad();
  EXPECT_EQ(message_of([&] { sdpa(q, q, q, 1, {}, bias); }),
            "sdpa: bias requires a gradient, and sdpa has none for it; detach() it, or put the "
            "call under a bp::NoGradGuard");
}

TEST_F(Autograd, EndsGraphsOfAnyDepth) {
  Tensor y = x;
  for (int i = 0; i < 100'000; ++i) y = y.view({3});
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{1, 1, 1}));
}

TEST_F(Autograd, ReleasesGraphsOfAnyDepthThatSavedTensors) {
  Tensor y = x;
  for (int i = 0; i < 20'000; ++i) y = y * y;
  y = {};
  SUCCEED();
}

TEST_F(Autograd, GivesTheSameBitsInEveryRun) {
  const auto run = [&] {
    x.set_grad({});
    const Tensor third = x / 3;
    sum(exp(third) * third + log(third) / (third + 0.1) + third * 0.7).backward();
    return x.grad().to_vector<double>();
  };
  const Doubles first = run();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(), first);
}

}  // namespace
}  // namespace bp
