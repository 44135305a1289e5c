// Pipelines whose stages are sharded over replicas: two pipelines of two ranks each.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/distributed/fsdp.hpp"
#include "backplane/runtime/distributed/mesh.hpp"
#include "backplane/runtime/distributed/pipeline.hpp"
#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/test_fsdp.hpp"

namespace bp::distributed {
namespace {

constexpr int64_t kWidth = 6, kRows = 8;
constexpr uint32_t kMicroBatches = 4;
constexpr int kSteps = 3;

// A stage whose first layer is a unit of its own, and whose other two are the root unit.
std::shared_ptr<nn::Module> make_stage(uint32_t number) {
  const auto unit = std::make_shared<nn::Sequential>(
      Modules{std::make_shared<Linear>(kWidth, 9), std::make_shared<nn::Gelu>()});
  const auto stage = std::make_shared<nn::Sequential>(
      Modules{unit, std::make_shared<nn::LayerNorm>(9), std::make_shared<Linear>(9, kWidth)});
  set_values(*stage, 20 * number + 1);
  return stage;
}

Tensor loss_to(const Tensor& y, const Tensor& targets) { return loss_of(y - targets); }

// The stages of one rank of a mesh, in a pipeline.
struct Rank {
  Rank(const DeviceMesh& mesh, const PipelineSchedule& schedule, int stage)
      : data(mesh.group("data")) {
    const ProcessGroup& ranks = mesh.group("pipeline");
    for (const uint32_t number : schedule.stages_of(ranks.rank())) {
      stages.push_back(make_stage(number));
      const Modules units{stages.back()->named_modules()[0].second};
      if (stage > 0) {
        sharded.emplace_back(stages.back(), units, data, FsdpOptions{.stage = stage});
      }
    }
    pipeline.emplace(stages, loss_to, ranks,
                     PipelineOptions{.schedule = schedule, .activation_shape = {kWidth}});
  }

  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (size_t i = 0; i < stages.size(); ++i) {
      const auto own = sharded.empty() ? stages[i]->parameters() : sharded[i].parameters();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  // Runs a step. With `is_once` gradients are averaged once, behind all micro-batches.
  float run(int step, bool is_once) {
    const uint32_t seed = static_cast<uint32_t>(step) * 10 + data.rank();
    const Tensor x = input(kRows, kWidth, 77 + seed), targets = input(kRows, kWidth, 500 + seed);
    float loss = 0;
    {
      std::deque<std::unique_ptr<const FullyShardedDataParallel::NoSync>> held;
      for (FullyShardedDataParallel& fsdp : sharded) {
        if (is_once) held.emplace_back(new FullyShardedDataParallel::NoSync(fsdp.no_sync()));
      }
      loss = pipeline->forward_backward(x, targets).item<float>();
    }
    for (FullyShardedDataParallel& fsdp : sharded) {
      if (is_once) fsdp.average_gradients();
    }
    if (sharded.empty()) average_gradients(parameters(), data);
    return loss;
  }

  // Return the whole gradients and values, on the first pipeline if they are sharded.
  Bits gradients() const {
    Bits bits;
    for (size_t i = 0; i < stages.size(); ++i) {
      const Bits own = sharded.empty() ? gradients_of(*stages[i]) : gradients_of(sharded[i]);
      bits.insert(bits.end(), own.begin(), own.end());
    }
    return bits;
  }
  Bits values() const {
    Bits bits;
    for (size_t i = 0; i < stages.size(); ++i) {
      const Bits own =
          sharded.empty() ? values_of(*stages[i], stages[i]->state_dict()) : values_of(sharded[i]);
      bits.insert(bits.end(), own.begin(), own.end());
    }
    return bits;
  }

  const ProcessGroup data;
  Modules stages;
  std::deque<FullyShardedDataParallel> sharded;  // It is empty if the data axis has replicas.
  std::optional<PipelineParallel> pipeline;
};

struct Trained {
  std::vector<Step> steps;
  std::vector<float> losses;
};

// Trains with `stage` as in FsdpOptions, or with replicas for 0.
Trained train(const DeviceMesh& mesh, const PipelineSchedule& schedule, int stage, bool is_once) {
  Rank rank(mesh, schedule, stage);
  AdamW optimizer(rank.parameters(), {.lr = 0.01});
  Trained course;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    course.losses.push_back(rank.run(step, is_once));
    course.steps.push_back({rank.gradients(), {}});
    optimizer.step();
    course.steps.back().parameters = rank.values();
    const Tensor x = input(kRows, kWidth, 7);
    course.losses.push_back(rank.pipeline->forward(x, x).item<float>());
  }
  return course;
}

void with_mesh(const std::function<void(const DeviceMesh&)>& body) {
  run_ranks(4, [&](ProcessGroup& world) {
    body(DeviceMesh(world, {{"data", 2}, {"pipeline", 2}}));
  });
}

TEST(ShardedPipeline, EqualsReplicasInEveryBitIfItAveragesOnce) {
  with_mesh([](const DeviceMesh& mesh) {
    for (const char* const name : {"gpipe", "1f1b", "interleaved", "zb"}) {
      const bool is_deep = std::string(name) == "interleaved";
      const auto schedule = make_pipeline_schedule(name, 2, kMicroBatches, is_deep ? 2 : 1);
      const Trained want = train(mesh, schedule, 0, true);
      for (const int stage : {1, 2, 3}) {
        if (stage == 3 && std::string(name) == "zb") continue;
        SCOPED_TRACE(std::string(name) + ", stage " + std::to_string(stage));
        const Trained got = train(mesh, schedule, stage, true);
        EXPECT_EQ(got.losses, want.losses);
        if (mesh.group("data").rank() == 0) expect_equal(got.steps, want.steps);
      }
    }
  });
}

TEST(ShardedPipeline, MayAverageBehindEachMicroBatch) {
  with_mesh([](const DeviceMesh& mesh) {
    const auto schedule = make_pipeline_schedule("1f1b", 2, kMicroBatches, 1);
    const Trained want = train(mesh, schedule, 0, true);
    for (const int stage : {1, 2, 3}) {
      const Trained got = train(mesh, schedule, stage, false);
      for (size_t i = 0; i < want.losses.size(); ++i) {
        EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * want.losses[i]);
      }
      if (mesh.group("data").rank() > 0) continue;
      ASSERT_EQ(got.steps[0].gradients.size(), want.steps[0].gradients.size());
      EXPECT_LT(largest_difference(got.steps[0].gradients, want.steps[0].gradients), 1e-6);
    }
  });
}

TEST(ShardedPipeline, RefusesWhatShardsCannotDo) {
  with_mesh([](const DeviceMesh& mesh) {
    const ProcessGroup& ranks = mesh.group("pipeline");
    const auto zb = make_pipeline_schedule("zb", 2, kMicroBatches, 1);
    EXPECT_EQ(thrown_by([&] { Rank(mesh, zb, 3); }),
              "PipelineParallel: rank 0 of 2 of the group 'world.pipeline': the schedule 'zb' has "
              "backwards in halves, and a stage is sharded at stage 3, whose parameters have no "
              "memory at the second half; allowed: FsdpOptions::stage of 1 and 2, or whole "
              "backwards");
    const auto stage = make_stage(ranks.rank());
    FullyShardedDataParallel fsdp(stage, {}, mesh.group("data"), {.stage = 1});
    EXPECT_EQ(thrown_by([&] { fsdp.average_gradients(); }),
              "FullyShardedDataParallel: rank " + std::to_string(mesh.group("data").rank()) +
                  " of 2 of the group 'world.data': average_gradients() is called before the "
                  "first forward(); allowed: behind a backward() within no_sync()");
    const PipelineOptions shares{.schedule = make_pipeline_schedule("1f1b", 2, kMicroBatches, 1),
                                 .activation_shape = {kWidth},
                                 .shared_weights = {{"words", stage->parameters()[0]}}};
    EXPECT_EQ(thrown_by([&] { PipelineParallel({stage}, loss_to, ranks, shares); }),
              "PipelineParallel: rank 0 of 2 of the group 'world.pipeline': a stage is sharded by "
              "FullyShardedDataParallel, and there are shared weights; allowed: one of both, since "
              "the shards have the gradients");
  });
}

}  // namespace
}  // namespace bp::distributed
