// Tests captures of whole steps of training: they give what the eager steps give, bit for bit.
#include "backplane/runtime/capture.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/nn.hpp"
#include "backplane/runtime/ops.hpp"
#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/random.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;

class Captures : public testing::TestWithParam<CaptureKind> {
 protected:
  DeviceGuard guard{test_device()};
};

INSTANTIATE_TEST_SUITE_P(All, Captures,
                         testing::Values(CaptureKind::automatic, CaptureKind::program),
                         [](const auto& kind) {
                           return kind.param == CaptureKind::automatic ? "Graph" : "Program";
                         });

Floats data_of(int step) {
  Floats data;
  for (int i = 0; i < 12; ++i) data.push_back(static_cast<float>((i * 7 + step * 3) % 11) / 4 - 1);
  return data;
}

double rate_of(int step) { return 0.1 / step; }

uint64_t seed_of(int step) { return 100 + static_cast<uint64_t>(step); }

// A model with dropout whose steps run eagerly or as replays.
struct Training {
  Training() : optimizer(parameters()) {}

  std::vector<Tensor> parameters() {
    if (weights.empty()) {
      weights.push_back(from_host<float>(data_of(9), {3, 4}).set_requires_grad());
      weights.push_back(zeros({3}, BP_F32).set_requires_grad());
    }
    return weights;
  }
  Tensor forward() {
    const Tensor hidden = dropout(gelu(linear(x, weights[0], weights[1])), 0.3, &generator);
    return mean(hidden * hidden * hidden);
  }
  float eager(int step) {
    x.copy_from_host(data_of(step).data(), 48);
    generator.set_seed(seed_of(step));
    optimizer.zero_grad();
    const Tensor result = forward();
    result.backward();
    clip_grad_norm_on_device(weights, 0.5);
    optimizer.set_lr(rate_of(step));
    optimizer.step();
    return result.item<float>();
  }
  CapturedGraph capture(CaptureKind kind) {
    generator.set_seed(seed);
    Capture capture(current_device(), {}, kind);
    optimizer.zero_grad();
    loss = forward();
    loss.backward();
    clip_grad_norm_on_device(weights, 0.5);
    optimizer.step(rate, number);
    return capture.end();
  }
  float replay(const CapturedGraph& graph, int step) {
    const double lr = rate_of(step);
    const int64_t count = step;
    const uint64_t value = seed_of(step);
    x.copy_from_host(data_of(step).data(), 48);
    rate.copy_from_host(&lr, sizeof(lr));
    number.copy_from_host(&count, sizeof(count));
    seed.copy_from_host(&value, sizeof(value));
    graph.launch();
    optimizer.count_steps(1);
    return loss.item<float>();
  }

  std::vector<Tensor> weights;
  AdamW optimizer;
  Generator generator{1};
  Tensor x = zeros({3, 4}, BP_F32), loss;
  Tensor rate = zeros({}, BP_F64), number = zeros({}, BP_I64);
  Tensor seed = from_host<uint64_t>({0}, {});
};

TEST_P(Captures, ReplayStepsOfTrainingBitForBit) {
  Training eager, replayed;
  for (int step = 1; step <= 2; ++step) ASSERT_EQ(eager.eager(step), replayed.eager(step));
  const CapturedGraph graph = replayed.capture(GetParam());
  EXPECT_GT(graph.info().node_count, 5u);
  EXPECT_GT(graph.info().pool_bytes, 0u);
  std::vector<float> losses;
  for (int step = 3; step <= 12; ++step) {
    losses.push_back(eager.eager(step));
    EXPECT_EQ(replayed.replay(graph, step), losses.back()) << "step " << step;
  }
  EXPECT_NE(losses.front(), losses.back());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(replayed.weights[i].to_vector<float>(), eager.weights[i].to_vector<float>());
    EXPECT_EQ(replayed.weights[i].grad().to_vector<float>(),
              eager.weights[i].grad().to_vector<float>());
  }
  // The steps that follow continue from the replays.
  EXPECT_EQ(replayed.optimizer.state_dict().at("step_counts").to_vector<int64_t>(),
            (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(replayed.eager(13), eager.eager(13));
}

TEST_P(Captures, DrawOtherNumbersForEachSeed) {
  Generator generator(1);
  const Tensor seed = from_host<uint64_t>({7}, {1});
  generator.set_seed(seed);
  Tensor first, second;
  Capture capture(current_device(), {}, GetParam());
  first = uniform({8}, BP_F32, current_device(), &generator);
  second = uniform({8}, BP_F32, current_device(), &generator);
  const CapturedGraph graph = capture.end();
  for (const uint64_t value : {7u, 8u}) {
    seed.copy_from_host(&value, sizeof(value));
    graph.launch();
    Generator expected(value);
    EXPECT_EQ(first.to_vector<float>(),
              uniform({8}, BP_F32, current_device(), &expected).to_vector<float>());
    EXPECT_EQ(second.to_vector<float>(),
              uniform({8}, BP_F32, current_device(), &expected).to_vector<float>());
  }
  EXPECT_EQ(message_of([&] { generator.set_seed(zeros({2}, BP_F32)); }),
            "Generator::set_seed: the seed is f32 (2,); allowed: one element of u64");
}

TEST_P(Captures, TakeOtherMemoryForASlot) {
  const Tensor a = full({4}, 1, BP_F32), b = full({4}, 5, BP_F32);
  Tensor y;
  Capture capture(current_device(), {a}, GetParam());
  y = a + 1;
  const CapturedGraph graph = capture.end();
  graph.launch();
  EXPECT_EQ(y.to_vector<float>(), Floats(4, 2));
  graph.bind(0, b);
  graph.launch();
  EXPECT_EQ(y.to_vector<float>(), Floats(4, 6));
  EXPECT_NE(message_of([&] {
              graph.bind(0, zeros({4, 2}, BP_F32).select(1, 0));
            }).find("strides"),
            std::string::npos);
}

TEST_P(Captures, RefuseValuesOnTheHostAndGoOn) {
  const Tensor x = full({4}, 3, BP_F32);
  Capture capture(current_device(), {}, GetParam());
  const Tensor y = x * 2;
  EXPECT_NE(message_of([&] { sum(y).item<float>(); }).find("captures"), std::string::npos);
  const CapturedGraph graph = capture.end();
  graph.launch();
  EXPECT_EQ(y.to_vector<float>(), Floats(4, 6));
  EXPECT_EQ(message_of([&] { capture.end(); }), "Capture::end: the capture has ended already");
}

TEST_P(Captures, AreAbandonedWithoutAnEnd) {
  const Tensor x = full({4}, 3, BP_F32);
  {
    const Capture capture(current_device(), {}, GetParam());
    x.fill(4);
  }
  EXPECT_EQ(x.to_vector<float>(), Floats(4, 3));
}

TEST(StepsInTensors, NeedOneNumberOfSteps) {
  const DeviceGuard guard{test_device()};
  const Tensor a = ones({2}, BP_F32).set_requires_grad(), b = ones({2}, BP_F32).set_requires_grad();
  AdamW optimizer({a, b});
  sum(a * a).backward();
  optimizer.step();
  sum(b * b).backward();
  EXPECT_EQ(message_of([&] { optimizer.step(full({}, 0.1, BP_F64), full({}, 2, BP_I64)); }),
            "AdamW: parameter 1 has taken 0 steps, and parameter 0 1; allowed with a step in a "
            "tensor: one number");
}

TEST(StepsInTensors, ClipOnTheDeviceAsOnTheHost) {
  const DeviceGuard guard{test_device()};
  for (const double most : {1.0, 100.0}) {
    const Tensor a = from_host<float>({3, 4}, {2}).set_requires_grad();
    const Tensor b = from_host<float>({3, 4}, {2}).set_requires_grad();
    sum(a * a).backward();
    sum(b * b).backward();
    const double norm = clip_grad_norm({a}, most);
    EXPECT_FLOAT_EQ(clip_grad_norm_on_device({b}, most).item<float>(), static_cast<float>(norm));
    const Floats x = a.grad().to_vector<float>(), y = b.grad().to_vector<float>();
    for (size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(x[i], y[i]);
  }
  const Tensor none = ones({2}, BP_F32).set_requires_grad();
  EXPECT_FALSE(clip_grad_norm_on_device({none}, 1));
  none.set_grad(zeros({2}, BP_F32));
  clip_grad_norm_on_device({none}, 1);
  EXPECT_EQ(none.grad().to_vector<float>(), Floats(2, 0));
}

}  // namespace
}  // namespace bp
