#include "backplane/runtime/distributed/ddp.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

using nn::Linear;

TEST(Ddp, AveragesTheGradientsOfOneLayer) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Linear>(2, 1, false);
    set_values(*model, group.rank());
    DistributedDataParallel ddp(model, group);
    const float x = group.rank() == 0 ? 1.0f : 5.0f;
    bp::sum(ddp(full({1, 2}, x, BP_F32))).backward();
    EXPECT_EQ(model->parameters()[0].grad().to_vector<float>(), (std::vector<float>{3, 3}));
  });
}

// Trains on one process with the parts of all ranks, one after the other. `is_reversed` adds the
// parts in the other order.
std::vector<Bits> accumulate_on_one(uint32_t ranks, uint32_t steps, uint32_t micro_steps,
                                    bool is_reversed = false) {
  const DeviceGuard guard(test_devices()[0]);
  auto model = small_model();
  set_values(*model, 0);
  AdamW optimizer(model->parameters());
  std::vector<Bits> result;
  for (uint32_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    std::vector<std::vector<Tensor>> parts;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (const Tensor& tensor : model->parameters()) tensor.set_grad({});
      for (uint32_t micro = 0; micro < micro_steps; ++micro) {
        loss_of((*model)(input(5, 7, 1000u * step + 10u * micro + rank))).backward();
      }
      parts.emplace_back();
      for (const Tensor& tensor : model->parameters()) parts.back().push_back(tensor.grad());
    }
    const NoGradGuard no_grad;
    if (is_reversed) std::ranges::reverse(parts);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      Tensor total = parts[0][i];
      for (uint32_t rank = 1; rank < ranks; ++rank) total = total + parts[rank][i];
      model->parameters()[i].set_grad(total / static_cast<double>(ranks));
    }
    result.push_back(gradients_of(*model));
    optimizer.step();
  }
  return result;
}

void expect_bits_of_one(uint32_t ranks, uint32_t micro_steps, const DdpOptions& options) {
  constexpr uint32_t kSteps = 4;
  const std::vector<Bits> want = accumulate_on_one(ranks, kSteps, micro_steps);
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 100 * group.rank());
    DistributedDataParallel ddp(model, group, options);
    AdamW optimizer(model->parameters());
    for (uint32_t step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      for (uint32_t micro = 0; micro < micro_steps; ++micro) {
        const Tensor x = input(5, 7, 1000u * step + 10u * micro + group.rank());
        if (micro + 1 == micro_steps) {
          loss_of(ddp(x)).backward();
        } else {
          const auto no_sync = ddp.no_sync();
          loss_of(ddp(x)).backward();
        }
      }
      expect_equal_bits(gradients_of(*model), want[step]);
      optimizer.step();
    }
  });
}

TEST(Ddp, EqualsAccumulationOnOneProcessInEveryBit) {
  EXPECT_NE(accumulate_on_one(4, 1, 1, true), accumulate_on_one(4, 1, 1))
      << "another order gives other bits, so the comparison can fail";
  expect_bits_of_one(2, 1, {});
  expect_bits_of_one(4, 1, {});
}

TEST(Ddp, EqualsItWithManySmallBuckets) {
  expect_bits_of_one(4, 1, {.bucket_bytes = 600, .first_bucket_bytes = 100});
}

TEST(Ddp, EqualsItWithGradientsFromNoSync) { expect_bits_of_one(2, 3, {.bucket_bytes = 600}); }

// Two branches; the input says which of them the result depends on.
class Branches : public nn::Module {
 public:
  Branches() {
    add_module("left", left_ = std::make_shared<Linear>(2, 2, false));
    add_module("right", right_ = std::make_shared<Linear>(2, 2, false));
    add_module("never", std::make_shared<Linear>(2, 2, false));
  }
  Tensor forward(const Tensor& x) override { return (*(takes_left ? left_ : right_))(x); }
  bool takes_left = true;

 private:
  std::shared_ptr<Linear> left_, right_;
};

// Returns the first element of the gradient of each parameter; -1 without one.
std::vector<float> first_gradients(const nn::Module& module) {
  std::vector<float> values;
  for (const auto& gradient : gradients_of(module)) {
    values.push_back(gradient.empty() ? -1 : gradient[0]);
  }
  return values;
}

Tensor sum_of_ones(DistributedDataParallel& ddp) { return bp::sum(ddp(full({1, 2}, 1, BP_F32))); }

TEST(Ddp, FindsUnusedParameters) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto model = std::make_shared<Branches>();
    DistributedDataParallel ddp(model, group, {.finds_unused = true});
    model->takes_left = group.rank() == 0;
    sum_of_ones(ddp).backward();
    EXPECT_EQ(first_gradients(*model), (std::vector<float>{0.5f, 0.5f, -1}));
    model->takes_left = true;
    for (const Tensor& tensor : model->parameters()) tensor.set_grad({});
    sum_of_ones(ddp).backward();
    EXPECT_EQ(first_gradients(*model), (std::vector<float>{1, -1, -1}));
  });
}

TEST(Ddp, TakesTheNamesOfUnusedParameters) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto model = std::make_shared<Branches>();
    const bool takes_left = group.rank() == 0;
    const std::string other = takes_left ? "right.weight" : "left.weight";
    DistributedDataParallel ddp(model, group, {.unused_parameters = {"never.weight", other}});
    model->takes_left = takes_left;
    for (int step = 0; step < 3; ++step) {
      for (const Tensor& tensor : model->parameters()) tensor.set_grad({});
      sum_of_ones(ddp).backward();
      EXPECT_EQ(first_gradients(*model), (std::vector<float>{0.5f, 0.5f, -1}));
    }
    model->takes_left = !takes_left;
    EXPECT_NE(thrown_by([&] {
                sum_of_ones(ddp).backward();
              }).find("a gradient came for '" + other + "', which counts as unused"),
              std::string::npos);
    group.abort();
  });
}

TEST(Ddp, NamesParametersWithoutAGradient) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto model = std::make_shared<Branches>();
    DistributedDataParallel ddp(model, group);
    sum_of_ones(ddp).backward();
    EXPECT_EQ(thrown_by([&] { sum_of_ones(ddp); }),
              "DistributedDataParallel: the last backward() did not end its exchange: no gradient "
              "came for 'right.weight', 'never.weight'; allowed with finds_unused, or with these "
              "names in unused_parameters");
  });
}

TEST(Ddp, NamesWhatDiffersBetweenTheRanks) {
  run_ranks(4, [](ProcessGroup& group) {
    const auto model = std::make_shared<Linear>(3, group.rank() == 2 ? 5 : 4);
    EXPECT_EQ(thrown_by([&] { DistributedDataParallel ddp(model, group); }),
              "DistributedDataParallel: the ranks have different models: parameter 0 is 'weight' "
              "f32 (5, 3) on rank 2 and 'weight' f32 (4, 3) on rank 0");
    const auto other = std::make_shared<Linear>(3, 4, group.rank() != 1);
    EXPECT_EQ(thrown_by([&] { DistributedDataParallel ddp(other, group); }),
              "DistributedDataParallel: the ranks have different models: parameter 1 is missing on "
              "rank 1 and 'bias' f32 (4,) on rank 0");
    EXPECT_EQ(thrown_by([&] {
                DistributedDataParallel ddp(other, group, {.unused_parameters = {"no"}});
              }),
              "DistributedDataParallel: unused_parameters names 'no', which is not a parameter of "
              "the model");
  });
}

TEST(Ddp, CopiesTheParametersOfRankZero) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 50 * group.rank());
    auto first = small_model();
    set_values(*first, 0);
    const DistributedDataParallel ddp(model, group);
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      EXPECT_EQ(model->parameters()[i].to_vector<float>(),
                first->parameters()[i].to_vector<float>());
    }
  });
}

TEST(Ddp, RebuildsBucketsInTheOrderOfTheGradients) {
  // The layers are used in another order than they were added in.
  class Crossed : public nn::Module {
   public:
    Crossed() {
      for (const char* name : {"a", "b", "c"}) {
        layers.push_back(std::make_shared<Linear>(4, 4, false));
        add_module(name, layers.back());
      }
    }
    Tensor forward(const Tensor& x) override { return (*layers[1])((*layers[0])((*layers[2])(x))); }
    std::vector<std::shared_ptr<Linear>> layers;
  };
  using Names = std::vector<std::vector<std::string>>;
  run_ranks(2, [](ProcessGroup& group) {
    DistributedDataParallel ddp(std::make_shared<Crossed>(), group,
                                {.bucket_bytes = 128, .first_bucket_bytes = 64});
    EXPECT_EQ(ddp.bucket_names(), (Names{{"c.weight"}, {"b.weight", "a.weight"}}));
    const Tensor x = full({1, 4}, 1, BP_F32);
    bp::sum(ddp(x)).backward();
    bp::sum(ddp(x)).backward();
    EXPECT_EQ(ddp.bucket_names(), (Names{{"b.weight"}, {"a.weight", "c.weight"}}));
    EXPECT_NO_THROW(bp::sum(ddp(x)).backward());
  });
}

TEST(Ddp, SendsBucketsBeforeTheLastGradient) {
  run_ranks(2, [](ProcessGroup& group) {
    std::vector<std::string> events;
    auto model = small_model();
    const GradHook first(model->parameters()[0],
                         [&](const Tensor&) { events.emplace_back("first weight"); });
    DdpOptions options{.bucket_bytes = 1100, .first_bucket_bytes = 100};
    options.comm_hook = [&](const ProcessGroup& g, const GradBucket& bucket) {
      events.push_back("bucket " + std::to_string(bucket.index));
      return average_hook(g, bucket);
    };
    DistributedDataParallel ddp(model, group, options);
    loss_of(ddp(input(2, 7, 1))).backward();
    EXPECT_EQ(events,
              (std::vector<std::string>{"bucket 0", "bucket 1", "first weight", "bucket 2"}));
  });
}

TEST(Ddp, KeepsGradientsInItsBuckets) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Linear>(2, 1, false);
    DistributedDataParallel ddp(model, group, {.rebuilds_buckets = false});
    sum_of_ones(ddp).backward();
    const Tensor kept = model->parameters()[0].grad();
    model->parameters()[0].set_grad({});
    bp::sum(ddp(full({1, 2}, 4, BP_F32))).backward();
    EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{4, 4})) << "the same memory";
    bp::sum(ddp(full({1, 2}, 1, BP_F32))).backward();
    EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{5, 5})) << "without zero_grad()";
  });
}

TEST(Ddp, SendsInSixteenBits) {
  const std::vector<std::pair<CommHook, float>> rows{{bf16_hook, 1.0f / 128},
                                                     {f16_hook, 1.0f / 1024}};
  for (const auto& row : rows) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto exact = small_model(), rounded = small_model();
      DistributedDataParallel first(exact, group);
      rounded->load_state_dict(exact->state_dict());
      DistributedDataParallel second(rounded, group, {.comm_hook = row.first});
      const Tensor x = input(5, 7, group.rank());
      loss_of(first(x)).backward();
      loss_of(second(x)).backward();
      const Bits want = gradients_of(*exact), got = gradients_of(*rounded);
      float largest = 0;
      for (const auto& values : want) {
        for (const float value : values) largest = std::max(largest, std::abs(value));
      }
      bool differs = false;
      for (size_t i = 0; i < want.size(); ++i) {
        for (size_t k = 0; k < want[i].size(); ++k) {
          EXPECT_NEAR(got[i][k], want[i][k], row.second * largest);
          differs = differs || got[i][k] != want[i][k];
        }
      }
      EXPECT_TRUE(differs);
    });
  }
}

TEST(Ddp, WantsAForwardBeforeEachExchange) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Linear>(2, 1, false);
    DistributedDataParallel ddp(model, group);
    const Tensor loss = sum_of_ones(ddp);
    loss.backward(Tensor(), true);
    EXPECT_EQ(thrown_by([&] { loss.backward(); }),
              "DistributedDataParallel: backward() reached 'weight' without a forward() since the "
              "last exchange; allowed: one backward() behind forward() or prepare_backward()");
    {
      const NoGradGuard no_grad;
      sum_of_ones(ddp);  // Does not count.
    }
    const Tensor y = (*model)(full({1, 2}, 1, BP_F32));
    ddp.prepare_backward({&y, 1});
    bp::sum(y).backward();
  });
}

TEST(Ddp, FailsWhereARankDoesNotCome) {
  run_ranks(2,
            [](ProcessGroup& group) {
              auto model = std::make_shared<Linear>(2, 1, false);
              DistributedDataParallel ddp(model, group);
              if (group.rank() == 1) return;
              const std::string text = thrown_by([&] {
                sum_of_ones(ddp).backward();
                model->parameters()[0].grad().to_vector<float>();
              });
              EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
            },
            {.timeout = std::chrono::milliseconds(500)});
}

}  // namespace
}  // namespace bp::distributed
