// Tests what running backward leaves in leaves, in the graph and in memory, and where it fails.
#include <gtest/gtest.h>

#include <thread>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/memory.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Doubles = std::vector<double>;

class Engine : public testing::Test {
 protected:
  Tensor plain(const Doubles& values) const {
    return from_host<double>(values, {static_cast<int64_t>(values.size())}, device);
  }
  Tensor leaf(const Doubles& values) const { return plain(values).set_requires_grad(); }
  uint64_t allocated() const { return memory_statistics(device).allocated_bytes; }

  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = leaf({1, 2, 3});
};

// ---- grad() ------------------------------------------------------------------------------------

TEST_F(Engine, LeavesTheGraphInFrontOfAnInputForALaterRun) {
  const Tensor middle = x * x;
  const std::vector<Tensor> there = grad(sum(middle * middle), {middle});
  EXPECT_EQ(there[0].to_vector<double>(), (Doubles{2, 8, 18}));
  middle.backward(there[0]);
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{4, 32, 108}));
}

TEST_F(Engine, LeavesTheGraphInFrontOfTheFirstOfSeveralInputs) {
  const Tensor first = x * x;
  const Tensor second = first * x;
  const std::vector<Tensor> both = grad(sum(second * 2), {second, first});
  EXPECT_EQ(both[0].to_vector<double>(), (Doubles{2, 2, 2}));
  EXPECT_EQ(both[1].to_vector<double>(), (Doubles{2, 4, 6}));
  EXPECT_NO_THROW(sum(first).backward());
  EXPECT_EQ(message_of([&] { sum(second).backward(); }).find("mul: what its gradient needs was "),
            0u)
      << "this one was run, since it leads to the first input";
}

TEST_F(Engine, GivesTheGradientOfAnInputThatIsGivenTwiceTwice) {
  const std::vector<Tensor> both = grad(sum(x * x), {x, x});
  EXPECT_EQ(both[0].to_vector<double>(), (Doubles{2, 4, 6}));
  EXPECT_EQ(both[1].to_vector<double>(), (Doubles{2, 4, 6}));
}

TEST_F(Engine, GivesTheGradientOfAnOutputForItself) {
  const Tensor y = sum(x);
  EXPECT_EQ(grad(y, {y})[0].item<double>(), 1);
  const Tensor alone = leaf({4});
  EXPECT_EQ(grad(alone, {alone})[0].to_vector<double>(), (Doubles{1}));
}

TEST_F(Engine, WeighsSeveralOutputs) {
  const std::vector<Tensor> outputs{x * 2, x * x};
  const std::vector<Tensor> weights{plain({1, 10, 100}), plain({1, 0, 1})};
  const std::vector<Tensor> inputs{x};
  EXPECT_EQ(grad(outputs, inputs, weights)[0].to_vector<double>(), (Doubles{4, 20, 206}));
  const std::vector<Tensor> one{weights[0]};
  EXPECT_EQ(message_of([&] { grad(outputs, inputs, one); }),
            "grad: there are 2 outputs and 1 gradients; allowed: as many, or none");
  const Tensor constant = plain({1});
  EXPECT_EQ(message_of([&] { grad(sum(x), {constant}); }),
            "grad: input 0 does not require a gradient");
  EXPECT_EQ(message_of([&] { grad(sum(x), {}); }),
            "grad: the list of inputs is empty; allowed: at least one tensor");
}

// ---- Leaves ------------------------------------------------------------------------------------

TEST_F(Engine, TakesALeafForAnOutput) {
  const Tensor one = leaf({5});
  one.backward();
  EXPECT_EQ(one.grad().to_vector<double>(), (Doubles{1}));
  x.backward(plain({1, 2, 3}));
  x.backward(plain({1, 1, 1}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{2, 3, 4}));
}

TEST_F(Engine, AddsTheGradientsOfAnOutputThatIsGivenTwice) {
  const Tensor y = sum(x * x);
  const std::vector<Tensor> outputs{y, y};
  backward(outputs);
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{4, 8, 12}));
}

TEST_F(Engine, GivesNoTwoLeavesTheSameMemory) {
  const Tensor other = leaf({4, 5, 6});
  const Tensor third = leaf({7, 8, 9});
  ((x + other) + third.view({3, 1}).view({3})).backward(plain({1, 2, 3}));
  const NoGradGuard no_grad;
  x.grad().fill(0);
  other.grad().fill(5);
  EXPECT_EQ(third.grad().to_vector<double>(), (Doubles{1, 2, 3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{0, 0, 0}));
}

TEST_F(Engine, KeepsNoViewOfWhatTheCallerGave) {
  const Tensor given = plain({1, 2, 3});
  x.view({3, 1}).backward(given.view({3, 1}));
  given.fill(9);
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{1, 2, 3}));
  EXPECT_EQ(x.grad().shape(), IntList({3}));
}

TEST_F(Engine, KeepsGradientsWithoutGaps) {
  x.expand({4, 3}).transpose().backward(ones({1, 1}, BP_F64).expand({3, 4}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{4, 4, 4}));
  const Tensor column = leaf({1, 2, 3});
  column.backward(ones({1}, BP_F64).expand({3}));
  EXPECT_TRUE(column.grad().is_contiguous());
  column.backward(plain({1, 2, 3}));
  EXPECT_EQ(column.grad().to_vector<double>(), (Doubles{2, 3, 4}));
}

TEST_F(Engine, TakesOnlyAGradientThatFitsItsLeaf) {
  EXPECT_EQ(message_of([&] {
              x.set_grad(ones({2}, BP_F64));
            }).find("set_grad: the gradient is f64 (2,) on "),
            0u);
  EXPECT_THROW(x.set_grad(ones({3}, BP_F32)), Error);
  EXPECT_THROW(x.set_grad(ones({3}, BP_F64, second_test_device())), Error);
  EXPECT_FALSE(x.grad());
  x.set_grad(plain({1, 1, 1}));
  x.set_grad(x.grad());
  sum(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{2, 2, 2}));
}

TEST_F(Engine, ReplacesAGradientThatIsPartOfAGraph) {
  sum(x * x * x).backward({}, false, /*create_graph=*/true);
  const Tensor first = x.grad();
  EXPECT_TRUE(first.requires_grad());
  sum(x).backward();
  EXPECT_EQ(first.to_vector<double>(), (Doubles{3, 12, 27})) << "who holds it keeps it";
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{4, 13, 28}));
  x.set_grad({});
  EXPECT_EQ(grad(sum(first), {x})[0].to_vector<double>(), (Doubles{6, 12, 18}));
}

TEST_F(Engine, CountsEachUseOfARowAndNoneOfOthers) {
  const Tensor table = arange(6, BP_F64).reshape({3, 2}).clone().set_requires_grad();
  sum(embedding(table, from_host<int64_t>({2, 0, 2}, {3}))).backward();
  EXPECT_EQ(table.grad().to_vector<double>(), (Doubles{1, 1, 0, 0, 2, 2}));
}

TEST_F(Engine, GivesZerosWhereNothingWasUsed) {
  sum(x.slice(0, 1, 1)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{0, 0, 0}));
  const Tensor none = zeros({0, 2}, BP_F64).set_requires_grad();
  sum(none * 2).backward();
  EXPECT_EQ(none.grad().shape(), IntList({0, 2}));
}

TEST_F(Engine, LeadsBackThroughEveryCast) {
  const Tensor narrow = from_host<float>({1, 2, 3}, {3}).set_requires_grad();
  sum(narrow.to(BP_F64).to(BP_F16).to(BP_F32) * 2).backward();
  EXPECT_EQ(narrow.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
  const Tensor whole = narrow.to(BP_I64);
  EXPECT_FALSE(whole.requires_grad()) << "an integer has no gradient";
  EXPECT_TRUE(whole.is_leaf());
}

// ---- Failures ----------------------------------------------------------------------------------

TEST_F(Engine, KeepsWhatWasReachedBeforeAFailureAndNothingElse) {
  const Tensor factor = plain({1, 1, 1});
  const Tensor first = x * factor;
  const Tensor late = leaf({1, 2, 3});  // backward() reaches it before `first`.
  const Tensor y = sum(first * late);
  factor.fill(2);
  for (const bool creates_graph : {false, true}) {
    EXPECT_EQ(message_of([&] {
                y.backward({}, true, creates_graph);
              }).find("mul: its gradient needs b as it was when the op ran"),
              0u);
    EXPECT_TRUE(is_grad_enabled());
    EXPECT_EQ(late.grad().to_vector<double>(), (Doubles{1, 2, 3}));
    EXPECT_FALSE(x.grad());
    late.set_grad({});
  }
  sum(x * late).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{1, 2, 3})) << "a new graph is not concerned";
}

TEST_F(Engine, RestoresTheModeOfItsCaller) {
  const Tensor y = sum(x * x);
  {
    const NoGradGuard no_grad;
    y.backward({}, true);
    EXPECT_FALSE(is_grad_enabled());
    EXPECT_THROW(backward(std::vector{plain({1})}), Error);
    EXPECT_FALSE(is_grad_enabled());
    EXPECT_FALSE(x.grad().requires_grad());
  }
  EXPECT_THROW((x * 2).backward(), Error);
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_FALSE(grad(y, {x})[0].requires_grad());
}

TEST_F(Engine, NoticesAWriteThroughAnyViewOfALeaf) {
  const Tensor y = sum(x * x);
  {
    const NoGradGuard no_grad;
    x.view({3, 1}).slice(0, 2, 3).fill(0);
  }
  EXPECT_NE(message_of([&] { y.backward(); }).find("was written in place since"),
            std::string::npos);
  EXPECT_FALSE(x.grad());
}

TEST_F(Engine, SaysThatAGraphWasFreedInTheMiddleOfALargerOne) {
  const Tensor shared = exp(x);
  sum(shared).backward();
  x.set_grad({});
  EXPECT_EQ(message_of([&] { sum(shared * 2).backward(); }),
            "exp: what its gradient needs was freed by an earlier backward; pass retain_graph to "
            "that one");
  EXPECT_FALSE(x.grad());
}

// ---- Memory ------------------------------------------------------------------------------------

TEST_F(Engine, FreesWhatNodesSavedAsSoonAsTheyHaveRun) {
  const Tensor wide = ones({1024}, BP_F64).set_requires_grad();
  const uint64_t before = allocated();
  Tensor y = sum(exp(exp(exp(wide))));
  EXPECT_GE(allocated(), before + 3 * 8192);
  y.backward();
  wide.set_grad({});
  EXPECT_LT(allocated(), before + 8192) << "only y is left";
  y = {};
  EXPECT_EQ(allocated(), before);
}

TEST_F(Engine, FreesAGraphThatNobodyRan) {
  const uint64_t before = allocated();
  {
    const Tensor wide = ones({1024}, BP_F64).set_requires_grad();
    const Tensor first = grad(sum(exp(wide * wide)), {wide}, {.create_graph = true})[0];
    const Tensor second = grad(sum(first), {wide}, {.create_graph = true})[0];
    EXPECT_TRUE(second.requires_grad());
    EXPECT_GT(allocated(), before + 8192);
  }
  EXPECT_EQ(allocated(), before);
}

TEST_F(Engine, FreesTheGradientsThatWereOnTheirWayWhenItFailed) {
  const Tensor factor = ones({1024}, BP_F64);
  const Tensor wide = ones({1024}, BP_F64).set_requires_grad();
  const uint64_t before = allocated();
  {
    const Tensor y = sum(exp(wide * factor));
    factor.fill(1);
    EXPECT_THROW(y.backward(), Error);
  }
  EXPECT_EQ(allocated(), before);
}

TEST_F(Engine, EndsDeepGraphsOfGradients) {
  Tensor y = x;
  for (int i = 0; i < 3000; ++i) y = y * 1;
  Tensor first = grad(sum(y), {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.to_vector<double>(), (Doubles{1, 1, 1}));
  first = {};
  y.backward(plain({1, 2, 3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{1, 2, 3}));
}

// ---- Threads -----------------------------------------------------------------------------------

TEST_F(Engine, ServesManyThreadsThatShareConstants) {
  constexpr int kThreads = 4;
  const Tensor shared = plain({1, 2, 3});
  std::vector<Doubles> gradients(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const DeviceGuard here(device);
      const Tensor own = plain({1, 1, 1}).set_requires_grad();
      for (int n = 0; n < 20; ++n) sum(own * shared * i + own).backward();
      gradients[static_cast<size_t>(i)] = own.grad().to_vector<double>();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(gradients[static_cast<size_t>(i)],
              (Doubles{20. * (i + 1), 20. * (2 * i + 1), 20. * (3 * i + 1)}));
  }
}

TEST_F(Engine, LetsThreadsBuildOnAndDropOneGraph) {
  const uint64_t before = allocated();
  {
    const Tensor shared = exp(x);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([shared, device = device] {
        const DeviceGuard here(device);
        for (int n = 0; n < 200; ++n) sum(shared * 2);
      });
    }
    for (std::thread& thread : threads) thread.join();
    sum(shared * x.detach()).backward();
    EXPECT_EQ(x.grad().to_vector<double>(), (exp(x) * x).detach().to_vector<double>());
    x.set_grad({});
  }
  EXPECT_EQ(allocated(), before);
}

}  // namespace
}  // namespace bp
