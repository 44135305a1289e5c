#include "backplane/runtime/optim.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/ops.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

class Optimizers : public testing::Test {
 protected:
  static Tensor parameter() { return from_host<float>({1, -2, 3}, {3}).set_requires_grad(); }
  // One step on the sum of cubes.
  static void step(Optimizer& optimizer, const Tensor& x) {
    optimizer.zero_grad();
    sum(x * x * x).backward();
    optimizer.step();
  }

  DeviceGuard guard{test_device()};
};

TEST_F(Optimizers, ContinueBitForBitFromTheirState) {
  const Tensor straight = parameter();
  AdamW first({straight}, {.lr = 0.1});
  for (int i = 0; i < 4; ++i) step(first, straight);

  const Tensor before = parameter();
  AdamW interrupted({before}, {.lr = 0.1});
  for (int i = 0; i < 2; ++i) step(interrupted, before);
  const TensorMap state = interrupted.state_dict();
  EXPECT_EQ(state.at("step_counts").to_vector<int64_t>(), std::vector<int64_t>{2});

  const Tensor after = before.detach().clone().set_requires_grad();
  AdamW resumed({after}, {.lr = 0.1});
  resumed.load_state_dict(state);
  for (int i = 0; i < 2; ++i) step(resumed, after);
  EXPECT_EQ(after.to_vector<float>(), straight.to_vector<float>());
}

TEST_F(Optimizers, RefuseAStateOfOtherParameters) {
  AdamW one({parameter()});
  TensorMap state = one.state_dict();
  state["exp_avg.0"] = zeros({2}, BP_F32);
  EXPECT_EQ(message_of([&] { one.load_state_dict(state); }),
            "AdamW: 'exp_avg.0' is f32 (2,); allowed: f32 (3,)");
  AdamW two({parameter(), parameter()});
  EXPECT_EQ(message_of([&] { two.load_state_dict(state); }),
            "AdamW: the state has 3 tensors; allowed: the 5 of state_dict()");
  state = one.state_dict();
  state["exp_avg.1"] = state.at("exp_avg.0");
  state.erase("exp_avg.0");
  EXPECT_EQ(message_of([&] { one.load_state_dict(state); }), "AdamW: the state has no 'exp_avg.0'");
}

TEST_F(Optimizers, TakeTheRateOfASchedule) {
  const Tensor x = parameter();
  AdamW optimizer({x}, {.lr = 0.1, .weight_decay = 0});
  optimizer.set_lr(0);
  step(optimizer, x);
  EXPECT_EQ(x.to_vector<float>(), parameter().to_vector<float>());
  EXPECT_EQ(message_of([&] { optimizer.set_lr(-1); }),
            "AdamW: lr is -1.000000; allowed: from 0.000000");
}

TEST(CosineSchedules, RiseAndFall) {
  const CosineSchedule schedule{.peak = 2, .least = 1, .warmup = 4, .total = 12};
  EXPECT_DOUBLE_EQ(schedule.lr(1), 0.5);
  EXPECT_DOUBLE_EQ(schedule.lr(3), 1.5);
  EXPECT_DOUBLE_EQ(schedule.lr(4), 2);
  EXPECT_DOUBLE_EQ(schedule.lr(8), 1.5);
  EXPECT_DOUBLE_EQ(schedule.lr(12), 1);
  EXPECT_DOUBLE_EQ(schedule.lr(100), 1);
  EXPECT_DOUBLE_EQ((CosineSchedule{.peak = 3, .total = 10}).lr(0), 3) << "without warm-up";
}

TEST_F(Optimizers, ClipTheNormOfAllGradients) {
  const Tensor a = parameter();
  const Tensor b = parameter();
  const Tensor unused = parameter();
  a.set_grad(from_host<float>({3, 0, 0}, {3}));
  b.set_grad(from_host<float>({0, 4, 0}, {3}));
  EXPECT_NEAR(clip_grad_norm({a, b, unused}, 10), 5, 1e-6);
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{3, 0, 0}));
  EXPECT_NEAR(clip_grad_norm({a, b, unused}, 1), 5, 1e-6);
  EXPECT_NEAR(b.grad().to_vector<float>()[1], 0.8, 1e-6);
  EXPECT_EQ(message_of([&] { clip_grad_norm({a}, 0); }),
            "clip_grad_norm: most is 0.000000; allowed: above 0");
}

}  // namespace
}  // namespace bp
