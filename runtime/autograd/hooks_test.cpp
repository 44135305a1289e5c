#include <gtest/gtest.h>

#include "backplane/runtime/runtime.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

class GradHookTest : public testing::Test {
 protected:
  Tensor leaf(float value) { return full({2}, value, BP_F32).set_requires_grad(); }
  // A hook that writes down the name and the gradient that it sees.
  GradHook note(const Tensor& tensor, const std::string& name) {
    return GradHook(tensor, [this, name](const Tensor& t) {
      calls.push_back(name + " " +
                      std::to_string(static_cast<int>(t.grad().select(0, 0).item<float>())));
    });
  }
  const DeviceGuard guard{test_device()};
  std::vector<std::string> calls;
};

using Calls = std::vector<std::string>;

TEST_F(GradHookTest, SeesTheWholeGradient) {
  const Tensor a = leaf(3);
  const GradHook hook = note(a, "a");
  const Tensor y = a * 2;
  sum(y + a * 5).backward();
  EXPECT_EQ(calls, (Calls{"a 7"})) << "once, with the gradients of both uses";
  sum(a * 1).backward();
  EXPECT_EQ(calls, (Calls{"a 7", "a 8"}));
}

// The weights of a chain are older than all its nodes.
TEST_F(GradHookTest, ComesWhileEarlierNodesHaveNotRun) {
  const Tensor first = leaf(2), second = leaf(3), third = leaf(5);
  std::vector<bool> first_had_grad;
  const auto watch = [&](const Tensor&) { first_had_grad.push_back(bool(first.grad())); };
  const GradHook notes[] = {note(first, "first"), note(second, "second"), note(third, "third")};
  const GradHook watches[] = {GradHook(third, watch), GradHook(second, watch)};
  sum(full({2}, 1, BP_F32) * first * second * third).backward();
  EXPECT_EQ(calls, (Calls{"third 6", "second 10", "first 15"}));
  EXPECT_EQ(first_had_grad, (std::vector<bool>{false, false}));
}

TEST_F(GradHookTest, WaitsForTheEarliestUse) {
  const Tensor shared = leaf(2), other = leaf(3);
  const GradHook notes[] = {note(shared, "shared"), note(other, "other")};
  const Tensor x = shared * 1;
  sum(x * other * shared).backward();
  EXPECT_EQ(calls, (Calls{"other 4", "shared 12"}));
}

TEST_F(GradHookTest, IsNotCalledForALeafThatNoGradientReached) {
  const Tensor used = leaf(2), unused = leaf(3);
  const GradHook notes[] = {note(used, "used"), note(unused, "unused")};
  const Tensor side = unused * 2;
  sum(used * 3).backward();
  EXPECT_EQ(calls, (Calls{"used 3"}));
  EXPECT_EQ(side.numel(), 2);
}

TEST_F(GradHookTest, IsNotCalledByGrad) {
  const Tensor a = leaf(3);
  const GradHook hook = note(a, "a");
  EXPECT_EQ(grad(sum(a * 2), {a})[0].to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(calls, Calls{});
}

TEST_F(GradHookTest, EndsWithItsObjectAndMovesWithIt) {
  const Tensor a = leaf(3);
  {
    GradHook hook = note(a, "one");
    const GradHook moved = std::move(hook);
    sum(a * 1).backward();
  }
  sum(a * 1).backward();
  EXPECT_EQ(calls, (Calls{"one 1"}));
}

TEST_F(GradHookTest, MayReplaceTheGradient) {
  const Tensor a = leaf(3);
  const GradHook hook(a, [](const Tensor& t) { t.set_grad(t.grad() * 10); });
  sum(a * 2).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{20, 20}));
}

TEST_F(GradHookTest, EndsTheRunWithWhatItThrows) {
  const Tensor a = leaf(3);
  const GradHook hook(a, [](const Tensor&) { throw Error(BP_ABORTED, "stop"); });
  EXPECT_EQ(message_of([&] { sum(a * 2).backward(); }), "stop");
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{2, 2}));
}

TEST_F(GradHookTest, TakesLeavesAlone) {
  const Tensor a = leaf(3);
  const auto nothing = [](const Tensor&) {};
  EXPECT_EQ(message_of([&] { GradHook hook(a * 2, nothing); }),
            "GradHook: the tensor is not a leaf that requires a gradient; allowed: such a leaf");
  EXPECT_EQ(message_of([&] { GradHook hook(a.detach(), nothing); }),
            "GradHook: the tensor is not a leaf that requires a gradient; allowed: such a leaf");
}

class WithGradient : public GradHookTest {
 protected:
  // Returns 3 * x, with its gradient.
  Tensor triple(const Tensor& x) {
    const Tensor y = x.detach() * 3;
    return with_gradient("triple", {&x, 1}, y, [this](const Tensor& gradient) {
      calls.emplace_back("triple");
      return std::vector<Tensor>{gradient * 3};
    });
  }
};

TEST_F(WithGradient, TakesTheGradientFromTheFunction) {
  const Tensor a = leaf(2);
  const Tensor y = triple(a);
  EXPECT_EQ(y.detach().to_vector<float>(), (std::vector<float>{6, 6}));
  sum(y * triple(y)).backward(Tensor(), true);
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>(2, 2 * 3 * 3 * 3 * 2)));
  EXPECT_EQ(calls, (Calls{"triple", "triple"})) << "once for each use";
  EXPECT_EQ(grad(sum(y), {a})[0].to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST_F(WithGradient, RecordsNothingWithoutNeed) {
  const Tensor a = full({2}, 1, BP_F32);
  EXPECT_FALSE(triple(a).requires_grad());
  const NoGradGuard no_grad;
  EXPECT_FALSE(triple(leaf(1)).requires_grad());
}

TEST_F(WithGradient, TakesSeveralInputsAndLeavesGradientsOut) {
  const Tensor a = leaf(2), b = leaf(3), c = full({2}, 1, BP_F32);
  const Tensor inputs[] = {a, c, b};
  const Tensor y = with_gradient("join", inputs, a.detach() + b.detach(), [](const Tensor& g) {
    return std::vector<Tensor>{g * 5, g * 7, Tensor()};
  });
  sum(y).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{5, 5}));
  EXPECT_FALSE(b.grad());
}

TEST_F(WithGradient, NamesGradientsThatDoNotFit) {
  const Tensor a = leaf(2);
  const auto returns = [&](std::vector<Tensor> gradients) {
    const Tensor y = with_gradient("mine", {&a, 1}, a.detach().clone(),
                                   [gradients](const Tensor&) { return gradients; });
    return message_of([&] { sum(y).backward(); });
  };
  EXPECT_EQ(returns({}), "mine: its function returned 0 gradients; allowed: 1, one for each input");
  EXPECT_EQ(returns({zeros({3}, BP_F32)}),
            "mine: gradient 0 is f32 (3,); allowed: f32 (2,), as the input");
  EXPECT_EQ(
      message_of([&] {
        with_gradient("mine", {&a, 1}, a * 2, [](const Tensor&) { return std::vector<Tensor>(1); });
      }),
      "mine: the output is part of a graph; allowed: one that was computed under a "
      "bp::NoGradGuard, or detach()");
}

TEST_F(WithGradient, CallsAtTheEndOfTheRun) {
  const Tensor a = leaf(2);
  const GradHook hook(a, [&](const Tensor&) {
    after_backward([&](bool is_complete) { calls.emplace_back(is_complete ? "end" : "broken"); });
    calls.emplace_back("hook");
  });
  const Tensor earlier = a * 2;  // Its node runs behind the hook of no leaf.
  sum(triple(earlier) + triple(a)).backward();
  EXPECT_EQ(calls, (Calls{"triple", "triple", "hook", "end"}));
  calls.clear();
  const GradHook thrower(a, [](const Tensor&) { throw Error(BP_ABORTED, "stop"); });
  EXPECT_EQ(message_of([&] { sum(a * 2).backward(); }), "stop");
  EXPECT_EQ(calls, (Calls{"hook", "broken"}));
  EXPECT_EQ(message_of([&] { after_backward([](bool) {}); }),
            "after_backward: no backward() runs on this thread; allowed: calls from the functions "
            "that a run calls");
}

}  // namespace
}  // namespace bp
