#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "backplane/runtime/memory.hpp"
#include "runtime/distributed/test_fsdp.hpp"

namespace bp::distributed {
namespace {

constexpr int64_t kWidth = 256;
constexpr int64_t kLayers = 8;
constexpr double kUnitBytes = 4.0 * kWidth * kWidth;

std::shared_ptr<nn::Sequential> wide_model() {
  Modules layers;
  for (int64_t i = 0; i < kLayers; ++i) {
    layers.push_back(std::make_shared<Linear>(kWidth, kWidth, false));
  }
  return std::make_shared<nn::Sequential>(layers);
}

// Memory that another stream has used counts until the cache learns that this stream is done.
double allocated(Device device) {
  device.synchronize();
  empty_cache(device);
  return static_cast<double>(memory_statistics(device).allocated_bytes);
}

// Returns the bytes that a model, its gradients and its optimizer take on each rank after a step.
double bytes_after_step(uint32_t ranks, const FsdpOptions& options) {
  double most = 0;
  std::mutex mutex;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const double before = allocated(group.device());
    auto model = wide_model();
    FullyShardedDataParallel fsdp(model, units_of(*model), group, options);
    AdamW optimizer(fsdp.parameters());
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      loss_of(fsdp(input(1, kWidth, 1))).backward();
      optimizer.step();
    }
    const std::scoped_lock lock(mutex);
    most = std::max(most, allocated(group.device()) - before);
  });
  return most;
}

TEST(Fsdp, TakesMemoryThatFallsWithTheRanks) {
  const double model = kUnitBytes * kLayers;
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    // Parameters, gradients, and two moments.
    EXPECT_NEAR(bytes_after_step(ranks, {.stage = 3}), 4 * model / ranks, 0.05 * 4 * model / ranks);
    const double second = model + 3 * model / ranks;
    EXPECT_NEAR(bytes_after_step(ranks, {.stage = 2}), second, 0.05 * second);
    const double first =
        2 * model + 3 * model / ranks;  // The gradients of the rank's own part too.
    EXPECT_NEAR(bytes_after_step(ranks, {.stage = 1}), first, 0.05 * first);
  }
}

TEST(Fsdp, KeepsShardsOnAnotherDevice) {
  const Course course;
  std::vector<Step> want, got;
  run_ranks(2, [&](ProcessGroup& group) {
    auto steps = train_ddp(group, course);
    if (group.rank() == 0) want = std::move(steps);
  });
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto steps = train_fsdp(group, course, {.stage = stage, .shard_device = other_test_device()});
      if (group.rank() == 0) got = std::move(steps);
    });
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      expect_equal_bits(got[i].gradients, want[i].gradients);
      EXPECT_LT(largest_difference(got[i].parameters, want[i].parameters), 1e-6);
    }
  }
  EXPECT_LT(bytes_after_step(2, {.shard_device = other_test_device()}), kUnitBytes / 10);
}

// Returns how much memory a step has at most while a unit computes, beside what it has between
// steps, in units.
double units_in_step(const FsdpOptions& options) {
  double most = 0;
  std::mutex mutex;
  run_ranks(2, [&](ProcessGroup& group) {
    auto model = wide_model();
    const Modules units = units_of(*model);
    FullyShardedDataParallel fsdp(model, units, group, options);
    double between = 0, own = 0;
    std::vector<nn::ForwardHook> hooks;
    const auto look = [&](const Tensor& x) {
      own = std::max(own, allocated(group.device()));
      return x;
    };
    for (const auto& unit : units) {
      const auto gated = [&, look](const Tensor& y) {
        look(y);
        if (!is_grad_enabled()) return y;
        return with_gradient("look", {&y, 1}, y.detach(), [look](const Tensor& gradient) {
          return std::vector<Tensor>{look(gradient)};
        });
      };
      hooks.emplace_back(unit, "look", look, gated);
    }
    for (int step = 0; step < 3; ++step) {
      fsdp.zero_grad();
      between = allocated(group.device());
      own = 0;
      loss_of(fsdp(input(1, kWidth, 1))).backward();
    }
    const std::scoped_lock lock(mutex);
    most = std::max(most, (own - between) / kUnitBytes);
  });
  return most;
}

TEST(Fsdp, HoldsAFewUnitsAtATime) {
  // The root unit, the one that computes, one ahead, the gradients of the root, of the present
  // unit, and of two that are under way; then half of each reduced gradient.
  EXPECT_LT(units_in_step({}), 7 + kLayers / 2.0);
  EXPECT_GT(units_in_step({.reshards_after_forward = false}), kLayers);
}

TEST(Fsdp, GathersTheNextUnitAhead) {
  // The memory of the first unit's forward() in the second step: the root, the unit, and those
  // ahead.
  for (const uint32_t ahead : {0u, 1u, 2u}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto model = wide_model();
      const Modules units = units_of(*model);
      FullyShardedDataParallel fsdp(model, units, group,
                                    {.forward_prefetch = ahead, .backward_prefetch = ahead});
      const NoGradGuard no_grad;
      const Tensor x = input(1, kWidth, 1);
      const double before = allocated(group.device());
      double during = 0;
      const nn::ForwardHook hook(units[0], "look",
                                 [&](const Tensor& t) {
                                   during = allocated(group.device());
                                   return t;
                                 },
                                 {});
      fsdp(x);
      EXPECT_NEAR((during - before) / kUnitBytes, 2, 0.05) << "the order is not known yet";
      fsdp(x);
      EXPECT_NEAR((during - before) / kUnitBytes, 2 + ahead, 0.05);
    });
  }
}

}  // namespace
}  // namespace bp::distributed
