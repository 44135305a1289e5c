#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/distributed/test_fsdp.hpp"

namespace bp::distributed {
namespace {

void expect_bits_of_ddp(uint32_t ranks, const Course& course, const FsdpOptions& options) {
  SCOPED_TRACE("stage " + std::to_string(options.stage) + ", ranks " + std::to_string(ranks));
  std::vector<Step> want, got;
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto steps = train_ddp(group, course);
    if (group.rank() == 0) want = std::move(steps);
  });
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto steps = train_fsdp(group, course, options);
    if (group.rank() == 0) got = std::move(steps);
  });
  expect_equal(got, want);
}

TEST(Fsdp, EqualsDdpInEveryBitAtEveryStage) {
  for (const int stage : {1, 2, 3}) {
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) expect_bits_of_ddp(ranks, {}, {.stage = stage});
  }
}

TEST(Fsdp, EqualsItForATransformer) {
  const Course course{.model = transformer,
                      .input =
                          [](uint32_t seed) {
                            return input(6, 7, seed).view({2, 3, 7});
                          },
                      .steps = 3};
  for (const int stage : {1, 2, 3}) {
    for (const uint32_t ranks : {2u, 4u}) expect_bits_of_ddp(ranks, course, {.stage = stage});
  }
}

TEST(Fsdp, EqualsItWithEachPolicy) {
  expect_bits_of_ddp(2, {}, {.reshards_after_forward = false});
  expect_bits_of_ddp(2, {}, {.forward_prefetch = 0, .backward_prefetch = 0});
  expect_bits_of_ddp(2, {}, {.forward_prefetch = 3, .backward_prefetch = 3});
}

TEST(Fsdp, EqualsItWithGradientsFromNoSync) {
  for (const int stage : {1, 2, 3}) {
    expect_bits_of_ddp(2, {.steps = 3, .micro_steps = 3}, {.stage = stage});
  }
}

TEST(Fsdp, AddsGradientsOfSeveralBackwardRuns) {
  run_ranks(2, [](ProcessGroup& group) {
    for (const int stage : {1, 2, 3}) {
      auto model = std::make_shared<Linear>(2, 1, false);
      FullyShardedDataParallel fsdp(model, {}, group, {.stage = stage});
      const auto backward = [&] {
        bp::sum(fsdp(full({1, 2}, group.rank() == 0 ? 1 : 5, BP_F32))).backward();
      };
      backward();
      const Bits once = gradients_of(fsdp);
      backward();
      const Bits twice = gradients_of(fsdp);
      if (group.rank() == 0) {
        EXPECT_EQ(once, (Bits{{3, 3}}));
        EXPECT_EQ(twice, (Bits{{6, 6}}));
      }
      {
        const auto no_sync = fsdp.no_sync();
        backward();
      }
      fsdp.zero_grad();
      backward();
      const Bits after = gradients_of(fsdp);
      if (group.rank() == 0) {
        EXPECT_EQ(after, (Bits{{3, 3}}));
      }
    }
  });
}

TEST(Fsdp, SumsOverReplicasAsWell) {
  // Ranks 0 and 1 shard the model, and so do 2 and 3.
  const Course course;
  std::vector<Step> want, got;
  run_ranks(4, [&](ProcessGroup& group) {
    auto steps = train_ddp(group, course);
    if (group.rank() == 0) want = std::move(steps);
  });
  for (const int stage : {1, 2, 3}) {
    run_ranks(4, [&](ProcessGroup& group) {
      const auto shards = group.split(group.rank() / 2, group.rank(), "shards");
      ProcessGroup sharding = *shards;
      const auto replicas = group.split(group.rank() % 2, group.rank(), "replicas");
      auto model = small_model();
      set_values(*model, 100 * group.rank());
      FullyShardedDataParallel fsdp(model, units_of(*model), sharding,
                                    {.stage = stage, .replicas = replicas});
      AdamW optimizer(fsdp.parameters());
      std::vector<Step> steps;
      for (uint32_t step = 0; step < course.steps; ++step) {
        optimizer.zero_grad();
        loss_of(fsdp(input_of(course, step, 0, group.rank()))).backward();
        steps.push_back({gradients_of(fsdp), {}});
        optimizer.step();
        steps.back().parameters = values_of(fsdp);
      }
      if (group.rank() == 0) got = std::move(steps);
    });
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(largest_difference(got[i].gradients, want[i].gradients), 1e-6);
      EXPECT_LT(largest_difference(got[i].parameters, want[i].parameters), 1e-5);
    }
  }
}

TEST(Fsdp, ClipsByTheNormOfAllRanks) {
  for (const bool is_offloaded : {false, true}) {
    run_ranks(4, [&](ProcessGroup& group) {
      auto whole = small_model(), sharded = small_model();
      set_values(*whole, 1);
      set_values(*sharded, 1);
      DistributedDataParallel ddp(whole, group);
      FsdpOptions options;
      if (is_offloaded) options.shard_device = other_test_device();
      FullyShardedDataParallel fsdp(sharded, units_of(*sharded), group, options);
      const Tensor x = input(5, 7, group.rank());
      loss_of(ddp(x)).backward();
      loss_of(fsdp(x)).backward();
      const double want = clip_grad_norm_on_device(whole->parameters(), 1e-3).item<double>();
      EXPECT_NEAR(fsdp.clip_grad_norm(1e-3).item<double>(), want, 1e-6 * want);
      EXPECT_GT(want, 1e-3);
      const Bits got = gradients_of(fsdp);
      if (group.rank() == 0) {
        EXPECT_LT(largest_difference(got, bp::distributed::gradients_of(*whole)), 1e-9);
      }
    });
  }
}

// ---- Mixed precision ---------------------------------------------------------------------------

TEST(Fsdp, ComputesInSixteenBits) {
  struct Row {
    FsdpOptions options;
    double bound;  // Of the largest gradient.
  };
  const Row rows[] = {{{.compute_dtype = BP_BF16}, 1.0 / 32},
                      {{.compute_dtype = BP_F16}, 1.0 / 256},
                      {{.gather_dtype = BP_BF16}, 1.0 / 64},
                      {{.reduce_dtype = BP_BF16}, 1.0 / 64},
                      {{.reduce_dtype = BP_F16}, 1.0 / 512},
                      {{.compute_dtype = BP_BF16, .reduce_dtype = BP_BF16}, 1.0 / 32}};
  for (const Row& row : rows) {
    for (const int stage : {1, 2, 3}) {
      FsdpOptions options = row.options;
      options.stage = stage;
      run_ranks(2, [&](ProcessGroup& group) {
        auto exact = small_model(), rounded = small_model();
        set_values(*exact, 1);
        set_values(*rounded, 1);
        const Modules units = units_of(*rounded);
        DistributedDataParallel first(exact, group);
        FullyShardedDataParallel second(rounded, units, group, options);
        bp_dtype inside = 0;
        const nn::ForwardHook look(units[1], "look",
                                   [&](const Tensor& x) {
                                     inside = units[1]->parameters()[0].dtype();
                                     EXPECT_EQ(x.dtype(), inside);
                                     return x;
                                   },
                                   {});
        const Tensor x = input(5, 7, group.rank());
        loss_of(first(x)).backward();
        const Tensor y = second(x);
        EXPECT_EQ(y.dtype(), BP_F32);
        EXPECT_EQ(inside, options.compute_dtype == 0 ? bp_dtype{BP_F32} : options.compute_dtype);
        loss_of(y).backward();
        const Bits want = bp::distributed::gradients_of(*exact), got = gradients_of(second);
        if (group.rank() != 0) return;
        double largest = 0;
        for (const auto& values : want) {
          for (const float value : values) largest = std::max<double>(largest, std::abs(value));
        }
        const double off = largest_difference(got, want);
        EXPECT_LT(off, row.bound * largest);
        EXPECT_GT(off, 0);
      });
    }
  }
}

}  // namespace
}  // namespace bp::distributed
