#include "backplane/runtime/distributed/comm_hooks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

// Returns the norm of a - b over that of b.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

std::vector<double> all_gradients(const nn::Module& module) {
  std::vector<double> values;
  for (const auto& gradient : gradients_of(module)) {
    values.insert(values.end(), gradient.begin(), gradient.end());
  }
  return values;
}

// Gives the same parts of a batch to a model with a hook and to one without, for some steps.
// Returns the distance of the mean gradient over these steps from the exact one. The models do not
// change.
double distance_after(int steps, const CommHook& hook, ProcessGroup& group, int64_t rows = 40) {
  auto exact = small_model(), approximate = small_model();
  set_values(*exact, 0);
  set_values(*approximate, 0);
  DistributedDataParallel first(exact, group);
  DistributedDataParallel second(approximate, group, {.bucket_bytes = 600, .comm_hook = hook});
  const Tensor x = input(rows, 7, group.rank());
  loss_of(first(x)).backward();
  const std::vector<double> want = all_gradients(*exact);
  std::vector<double> mean(want.size());
  for (int step = 0; step < steps; ++step) {
    for (const Tensor& tensor : approximate->parameters()) tensor.set_grad({});
    loss_of(second(x)).backward();
    const std::vector<double> got = all_gradients(*approximate);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += got[i] / steps;
  }
  return distance(mean, want);
}

CommHook power_sgd(PowerSgdOptions options) {
  options.exact_steps = 0;
  options.least_ratio = 1;
  return power_sgd_hook(options);
}

// Each rank has one row of data, so the gradient of a weight is a product of two vectors on each
// rank, and of rank 2 on average.
TEST(PowerSgd, IsExactForGradientsOfLowRank) {
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_LT(distance_after(1, power_sgd({.rank = 2}), group, 1), 1e-5);
    EXPECT_GT(distance_after(1, power_sgd({.rank = 1}), group, 1), 1e-2);
  });
}

// What is left out comes later, so the mean over n steps is off by the last error over n alone.
TEST(PowerSgd, SendsWhatItLeftOutLater) {
  run_ranks(2, [](ProcessGroup& group) {
    const double once = distance_after(1, power_sgd({}), group);
    const double often = distance_after(30, power_sgd({}), group);
    const double forgetful = distance_after(30, power_sgd({.keeps_errors = false}), group);
    EXPECT_GT(once, 0.05);
    EXPECT_LT(often, once / 5);
    EXPECT_GT(forgetful, often * 2);
  });
}

TEST(PowerSgd, AveragesExactlyAtFirst) {
  run_ranks(2, [](ProcessGroup& group) {
    const CommHook hook = power_sgd_hook({.exact_steps = 2, .least_ratio = 1});
    EXPECT_EQ(distance_after(2, hook, group), 0);
  });
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_LT(distance_after(3, power_sgd_hook({.least_ratio = 1000}), group), 1e-6)
        << "no gradient shrinks so much";
  });
}

TEST(TopK, SendsWhatItLeftOutLater) {
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_LT(distance_after(1, top_k_hook({.ratio = 1}), group), 1e-6);
    const double once = distance_after(1, top_k_hook({.ratio = 0.05}), group);
    const double often = distance_after(60, top_k_hook({.ratio = 0.05}), group);
    const double forgetful =
        distance_after(60, top_k_hook({.ratio = 0.05, .keeps_errors = false}), group);
    EXPECT_GT(once, 0.3);
    EXPECT_LT(often, once / 3);
    EXPECT_GT(forgetful, often * 2);
  });
}

// Without it, ranks would hold different models before long.
TEST(CommHooks, GiveAllRanksTheSameBits) {
  using Make = std::function<CommHook()>;
  const std::vector<Make> makers{[] { return power_sgd({.rank = 2}); },
                                 [] { return top_k_hook({.ratio = 0.1}); }};
  for (const Make& make : makers) {
    std::vector<Bits> weights(4);
    const std::vector<Device>& devices = test_devices();
    std::vector<ProcessGroup> groups = ProcessGroup::make_local({devices.data(), 4});
    // Each rank has a hook of its own, as processes do.
    const auto messages = messages_of_ranks(4, [&](uint32_t rank) {
      const DeviceGuard guard(devices[rank]);
      auto model = small_model();
      set_values(*model, 0);
      DistributedDataParallel ddp(model, groups[rank], {.bucket_bytes = 600, .comm_hook = make()});
      AdamW optimizer(model->parameters());
      float loss = 0, before = 0;
      for (uint32_t step = 0; step < 40; ++step) {
        optimizer.zero_grad();
        const Tensor value = loss_of(ddp(input(8, 7, 10 + rank)));
        value.backward();
        optimizer.step();
        loss = value.item<float>();
        if (step == 0) before = loss;
      }
      EXPECT_LT(loss, before / 2) << "the training goes on";
      for (const Tensor& tensor : model->parameters()) {
        weights[rank].push_back(tensor.detach().to_vector<float>());
      }
    });
    for (const std::string& message : messages) EXPECT_EQ(message, "");
    for (uint32_t rank = 1; rank < 4; ++rank) expect_equal_bits(weights[rank], weights[0]);
  }
}

TEST(CommHooks, RefuseOptionsOutOfRange) {
  EXPECT_EQ(thrown_by([] { power_sgd_hook({.rank = 0}); }),
            "power_sgd_hook: rank is 0; allowed: at least 1");
  EXPECT_NE(thrown_by([] { power_sgd_hook({.exact_steps = -1}); }).find("allowed: at least 0"),
            std::string::npos);
  EXPECT_NE(thrown_by([] { power_sgd_hook({.least_ratio = 0.5}); }).find("allowed: at least 1"),
            std::string::npos);
  EXPECT_NE(thrown_by([] { top_k_hook({.ratio = 0}); }).find("allowed: above 0, at most 1"),
            std::string::npos);
  EXPECT_NE(thrown_by([] { top_k_hook({.ratio = 1.5}); }).find("top_k_hook: ratio is 1.5"),
            std::string::npos);
}

}  // namespace
}  // namespace bp::distributed
