#include "backplane/runtime/optim.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "backplane/runtime/ops.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

class Optimizers : public testing::Test {
 protected:
  static Tensor parameter() { return from_host<float>({1, -2, 3}, {3}).set_requires_grad(); }
  // Takes one step on the sum of cubes.
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
  EXPECT_EQ(message_of([&] { optimizer.set_lr(-1); }), "AdamW: lr is -1; allowed: from 0");
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
            "clip_grad_norm: most is 0; allowed: above 0");
}

// ---- Formulas, in double -----------------------------------------------------------------------

constexpr double kGradients[][2] = {{0.5, -2}, {-1, 0.25}, {3, 0}, {0.125, 1}};

// Runs a step of `optimizer` for each of kGradients, and `formula` on (p, g, step) after each step.
template <typename Formula>
void expect_steps(Optimizer& optimizer, const Tensor& x, const Formula& formula) {
  std::vector<double> p = x.detach().to_vector<double>();
  int64_t step = 0;
  for (const auto& gradient : kGradients) {
    x.set_grad(from_host<double>({gradient[0], gradient[1]}, {2}));
    optimizer.step();
    ++step;
    const std::vector<double> actual = x.detach().to_vector<double>();
    for (size_t i = 0; i < 2; ++i) {
      p[i] = formula(i, p[i], gradient[i], step);
      EXPECT_NEAR(actual[i], p[i], 1e-12) << "element " << i << " in step " << step;
    }
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{gradient[0], gradient[1]}));
  }
}

class Formulas : public Optimizers {
 protected:
  Tensor x = from_host<double>({1, -3}, {2}).set_requires_grad();
  double m[2] = {}, v[2] = {};
};

TEST_F(Formulas, OfSgdWithoutMomentum) {
  Sgd optimizer({x}, {.lr = 0.1, .weight_decay = 0.3});
  expect_steps(optimizer, x,
               [](size_t, double p, double g, int64_t) { return p - 0.1 * (g + 0.3 * p); });
}

TEST_F(Formulas, OfSgdWithMomentumAndDampening) {
  Sgd optimizer({x}, {.lr = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.01});
  expect_steps(optimizer, x, [this](size_t i, double p, double g, int64_t step) {
    g += 0.01 * p;
    m[i] = step == 1 ? g : 0.9 * m[i] + 0.75 * g;
    return p - 0.1 * m[i];
  });
}

TEST_F(Formulas, OfSgdWithNesterov) {
  Sgd optimizer({x}, {.lr = 0.1, .momentum = 0.8, .nesterov = true});
  expect_steps(optimizer, x, [this](size_t i, double p, double g, int64_t step) {
    m[i] = step == 1 ? g : 0.8 * m[i] + g;
    return p - 0.1 * (g + 0.8 * m[i]);
  });
}

TEST_F(Formulas, OfAdamWWithDecoupledDecay) {
  AdamW optimizer({x}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.2});
  expect_steps(optimizer, x, [this](size_t i, double p, double g, int64_t step) {
    p -= 0.1 * 0.2 * p;
    m[i] = 0.8 * m[i] + 0.2 * g;
    v[i] = 0.95 * v[i] + 0.05 * g * g;
    const auto n = static_cast<double>(step);
    const double root = std::sqrt(v[i] / (1 - std::pow(0.95, n)));
    return p - 0.1 * (m[i] / (1 - std::pow(0.8, n))) / (root + 1e-3);
  });
}

TEST_F(Formulas, OfAdamWithDecayInTheGradient) {
  Adam optimizer({x}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.2});
  expect_steps(optimizer, x, [this](size_t i, double p, double g, int64_t step) {
    g += 0.2 * p;
    m[i] = 0.8 * m[i] + 0.2 * g;
    v[i] = 0.95 * v[i] + 0.05 * g * g;
    const auto n = static_cast<double>(step);
    const double root = std::sqrt(v[i] / (1 - std::pow(0.95, n)));
    return p - 0.1 * (m[i] / (1 - std::pow(0.8, n))) / (root + 1e-3);
  });
}

TEST_F(Formulas, OfLion) {
  Lion optimizer({x}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.2});
  expect_steps(optimizer, x, [this](size_t i, double p, double g, int64_t) {
    const double c = 0.8 * m[i] + 0.2 * g;
    m[i] = 0.95 * m[i] + 0.05 * g;
    return p - 0.1 * ((c > 0) - (c < 0) + 0.2 * p);
  });
}

// ---- Which parameters --------------------------------------------------------------------------

TEST_F(Optimizers, CountTheStepsOfEachParameterByItself) {
  const Tensor steady = parameter(), late = parameter();
  AdamW optimizer({steady, late}, {.lr = 0.1});
  step(optimizer, steady);
  EXPECT_EQ(late.detach().to_vector<float>(), parameter().detach().to_vector<float>());
  EXPECT_EQ(optimizer.state_dict().at("step_counts").to_vector<int64_t>(),
            (std::vector<int64_t>{1, 0}));
  step(optimizer, late);
  const Tensor alone = parameter();
  AdamW other({alone}, {.lr = 0.1});
  step(other, alone);
  EXPECT_EQ(late.detach().to_vector<float>(), alone.detach().to_vector<float>())
      << "its first step is corrected as a first one";
  EXPECT_EQ(steady.detach().to_vector<float>(), alone.detach().to_vector<float>());
}

TEST_F(Optimizers, TakeOnlyLeavesAndEachOnce) {
  const Tensor x = parameter();
  EXPECT_EQ(message_of([&] {
              Sgd(std::vector{x, x});
            }),
            "Optimizer: a parameter is given twice, and would be updated twice in a step");
  const std::string no_leaf = "Optimizer: a parameter is not a leaf that requires a gradient";
  EXPECT_EQ(message_of([&] { Sgd(std::vector{x * 2}); }), no_leaf);
  EXPECT_EQ(message_of([&] { AdamW(std::vector{x.detach()}); }), no_leaf);
  EXPECT_EQ(message_of([] { AdamW(std::vector<Tensor>()); }),
            "Optimizer: the list of parameters is empty; pass model.parameters()");
}

TEST_F(Optimizers, RefuseOptionsThatDiverge) {
  const std::vector<Tensor> all{parameter()};
  const auto sgd = [&](const SgdOptions& o) { return message_of([&] { Sgd(all, o); }); };
  const auto adamw = [&](const AdamWOptions& o) { return message_of([&] { AdamW(all, o); }); };
  const auto lion = [&](const LionOptions& o) { return message_of([&] { Lion(all, o); }); };
  EXPECT_EQ(sgd({.lr = -1}), "Sgd: lr is -1; allowed: from 0");
  EXPECT_EQ(sgd({.lr = std::nan("")}).find("Sgd: lr is nan"), 0u);
  EXPECT_EQ(sgd({.momentum = -0.5}), "Sgd: momentum is -0.5; allowed: from 0");
  EXPECT_EQ(sgd({.nesterov = true}), "Sgd: nesterov needs momentum above 0 and dampening 0");
  EXPECT_EQ(adamw({.beta1 = 1}), "AdamW: beta1 is 1; allowed: 0 <= beta1 < 1");
  EXPECT_EQ(adamw({.beta2 = -0.1}), "AdamW: beta2 is -0.1; allowed: 0 <= beta2 < 1");
  EXPECT_EQ(adamw({.weight_decay = -1}), "AdamW: weight_decay is -1; allowed: from 0");
  EXPECT_EQ(message_of([&] { Adam(all, {.eps = -1}); }), "Adam: eps is -1; allowed: from 0");
  EXPECT_EQ(lion({.beta2 = 1}), "Lion: beta2 is 1; allowed: 0 <= beta2 < 1");
}

TEST_F(Optimizers, WriteInPlaceSoThatAnOldGraphNotices) {
  const Tensor x = parameter();
  const uint32_t before = x.version();
  Sgd optimizer({x}, {.lr = 0.5});
  const Tensor loss = sum(x * x);
  step(optimizer, x);
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_TRUE(x.is_leaf() && x.requires_grad());
  EXPECT_NE(message_of([&] { loss.backward(); }).find("was written in place since"),
            std::string::npos);
  optimizer.zero_grad();
  EXPECT_FALSE(x.grad());
  optimizer.step();
  EXPECT_EQ(x.version(), before + 1) << "without gradients nothing is done";
}

// ---- States and norms --------------------------------------------------------------------------

TEST_F(Optimizers, KeepTheirStateWhereAnotherIsRefused) {
  const Tensor x = parameter();
  AdamW optimizer({x}, {.lr = 0.1});
  step(optimizer, x);
  const std::vector<float> before = optimizer.state_dict().at("exp_avg.0").to_vector<float>();
  TensorMap state = optimizer.state_dict();
  for (auto& [name, tensor] : state) tensor = zeros_like(tensor);
  state["step_counts"] = from_host<int64_t>({-3}, {1});
  EXPECT_EQ(message_of([&] { optimizer.load_state_dict(state); }),
            "AdamW: 'step_counts' has -3; allowed: 0 and above");
  EXPECT_EQ(optimizer.state_dict().at("exp_avg.0").to_vector<float>(), before);
  EXPECT_EQ(optimizer.state_dict().at("step_counts").to_vector<int64_t>(), std::vector<int64_t>{1});
}

TEST_F(Optimizers, SaveTheAveragesThatTheyHave) {
  const Tensor x = parameter(), y = parameter();
  Lion first({x}, {.lr = 0.1}), second({y}, {.lr = 0.1});
  step(first, x);
  const TensorMap state = first.state_dict();
  EXPECT_EQ(state.size(), 2u) << "exp_avg.0 and step_counts";
  second.load_state_dict(state);
  EXPECT_EQ(second.state_dict().at("exp_avg.0").to_vector<float>(),
            state.at("exp_avg.0").to_vector<float>());
  Adam other({parameter()});
  EXPECT_EQ(message_of([&] { other.load_state_dict(state); }),
            "Adam: the state has 2 tensors; allowed: the 3 of state_dict()");
}

TEST_F(Optimizers, CopyTheStateThatTheyLoad) {
  const Tensor x = parameter(), y = parameter();
  AdamW first({x}, {.lr = 0.1}), second({y}, {.lr = 0.1});
  step(first, x);
  second.load_state_dict(first.state_dict());
  const std::vector<float> loaded = second.state_dict().at("exp_avg.0").to_vector<float>();
  step(first, x);
  EXPECT_EQ(second.state_dict().at("exp_avg.0").to_vector<float>(), loaded);
}

TEST_F(Optimizers, ClipGradientsWhoseSquaresLeaveTheirDtype) {
  const Tensor x = zeros({2}, BP_F16).set_requires_grad();
  x.set_grad(from_host<float>({300, 400}, {2}).to(BP_F16));
  EXPECT_NEAR(clip_grad_norm({x}, 50), 500, 1e-3);
  EXPECT_EQ(x.grad().to(BP_F32).to_vector<float>(), (std::vector<float>{30, 40}));
  x.set_grad(full({2}, 1e-4, BP_F16));
  EXPECT_NEAR(clip_grad_norm({x}, 1), 1e-4 * std::sqrt(2.0), 1e-6);
  const Tensor wide = zeros({2}, BP_F64).set_requires_grad();
  wide.set_grad(from_host<double>({3e30, 4e30}, {2}));
  EXPECT_NEAR(clip_grad_norm({wide, x}, 5) / 5e30, 1, 1e-12);
  EXPECT_NEAR(wide.grad().to_vector<double>()[0], 3, 1e-12);
  EXPECT_EQ(clip_grad_norm({parameter()}, 1), 0) << "without gradients";
}

}  // namespace
}  // namespace bp
