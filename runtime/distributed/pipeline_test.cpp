#include "backplane/runtime/distributed/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>

#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

constexpr int64_t kWidth = 6, kRows = 16;

// One layer for each stage. All but the last one give (rows, kWidth).
std::vector<std::shared_ptr<nn::Module>> layers_of(uint32_t count) {
  std::vector<std::shared_ptr<nn::Module>> layers;
  for (uint32_t i = 0; i < count; ++i) {
    const auto linear = std::make_shared<nn::Linear>(i == 0 ? 5 : kWidth, kWidth);
    layers.push_back(std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
        linear, std::make_shared<nn::Gelu>(), std::make_shared<nn::LayerNorm>(kWidth)}));
    set_values(*layers.back(), 10 * i + 1);
  }
  return layers;
}

Tensor loss_to(const Tensor& y, const Tensor& targets) { return loss_of(y - targets); }

struct Reference {
  float loss;
  std::vector<Bits> gradients;  // Of each layer.
};

// Runs the micro-batches on this device alone, one after the other.
Reference reference_of(uint32_t layer_count, int64_t micro_batches, int steps) {
  const auto layers = layers_of(layer_count);
  const Tensor x = input(kRows, 5, 77), targets = input(kRows, kWidth, 78);
  const int64_t rows = kRows / micro_batches;
  Tensor total;
  for (int step = 0; step < steps; ++step) {
    total = {};
    for (int64_t i = 0; i < micro_batches; ++i) {
      Tensor y = x.narrow(0, i * rows, rows);
      for (const auto& layer : layers) y = (*layer)(y);
      const Tensor loss = loss_to(y, targets.narrow(0, i * rows, rows));
      loss.backward(full({}, 1.0 / static_cast<double>(micro_batches), BP_F32));
      const NoGradGuard no_grad;
      total = total ? total + loss.detach() : loss.detach().clone();
    }
  }
  Reference reference{.loss = (total / static_cast<double>(micro_batches)).item<float>(),
                      .gradients = {}};
  for (const auto& layer : layers) reference.gradients.push_back(gradients_of(*layer));
  return reference;
}

// The stages of one rank.
std::vector<std::shared_ptr<nn::Module>> own_layers(const PipelineSchedule& schedule,
                                                    uint32_t rank) {
  const auto all = layers_of(schedule.stage_count());
  std::vector<std::shared_ptr<nn::Module>> own;
  for (const uint32_t stage : schedule.stages_of(rank)) own.push_back(all[stage]);
  return own;
}

void expect_reference(const PipelineSchedule& schedule) {
  SCOPED_TRACE(schedule.name);
  run_ranks(schedule.rank_count(), [&](ProcessGroup& group) {
    const Reference want = reference_of(schedule.stage_count(), schedule.micro_batch_count, 2);
    const auto own = own_layers(schedule, group.rank());
    PipelineParallel pipeline(own, loss_to, group,
                              {.schedule = schedule, .activation_shape = {kWidth}});
    const Tensor x = input(kRows, 5, 77), targets = input(kRows, kWidth, 78);
    EXPECT_EQ(pipeline.forward(x, targets).item<float>(), want.loss);
    for (const auto& layer : own) EXPECT_FALSE(layer->parameters()[0].grad());
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(pipeline.forward_backward(x, targets).item<float>(), want.loss);
    }
    const std::vector<uint32_t> stages = schedule.stages_of(group.rank());
    for (size_t i = 0; i < own.size(); ++i) {
      expect_equal_bits(gradients_of(*own[i]), want.gradients[stages[i]]);
    }
  });
}

TEST(Pipeline, GivesTheGradientsOfOneProcess) {
  for (const uint32_t ranks : {2u, 4u}) {
    expect_reference(make_gpipe_schedule(ranks, ranks));
    expect_reference(make_1f1b_schedule(ranks, 8));
    expect_reference(make_zero_bubble_schedule(ranks, ranks));
    expect_reference(make_zero_bubble_schedule(ranks, 8));
    expect_reference(make_interleaved_schedule(ranks, 8, 2));
  }
}

TEST(Pipeline, RunsOnOneRank) {
  expect_reference(make_1f1b_schedule(1, 4));
  expect_reference(make_zero_bubble_schedule(1, 2));
  expect_reference(make_interleaved_schedule(1, 4, 3));
}

// The stages go down the ranks and up again, so neighbours lie on one rank too.
TEST(Pipeline, RunsStagesThatLieAnywhere) {
  PipelineSchedule schedule = make_gpipe_schedule(2, 4);
  schedule.stage_ranks = {0, 1, 1, 0};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    schedule.ranks[rank].clear();
    for (uint32_t stage = 0; stage < 8; ++stage) {
      const bool is_forward = stage < 4;
      const uint32_t place = is_forward ? stage : 7 - stage;
      if (schedule.stage_ranks[place] != rank) continue;
      for (uint32_t i = 0; i < 4; ++i) {
        schedule.ranks[rank].push_back(
            {is_forward ? PipelineWork::kForward : PipelineWork::kBackward, i, place});
      }
    }
  }
  expect_reference(schedule);
}

TEST(Pipeline, TrainsAsOneProcess) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor x = input(kRows, 5, 77), targets = input(kRows, kWidth, 78);
    const auto alone = layers_of(2), all = layers_of(2);
    const auto own = all[group.rank()];
    std::vector<Tensor> parameters = alone[0]->parameters();
    for (const Tensor& p : alone[1]->parameters()) parameters.push_back(p);
    AdamW one(parameters), half(own->parameters());
    PipelineParallel pipeline(
        {own}, loss_to, group,
        {.schedule = make_zero_bubble_schedule(2, 2), .activation_shape = {kWidth}});
    for (int step = 0; step < 3; ++step) {
      one.zero_grad();
      for (int64_t i = 0; i < 2; ++i) {
        const Tensor y = (*alone[1])((*alone[0])(x.narrow(0, i * 8, 8)));
        loss_to(y, targets.narrow(0, i * 8, 8)).backward(full({}, 0.5, BP_F32));
      }
      one.step();
      half.zero_grad();
      pipeline.forward_backward(x, targets);
      half.step();
    }
    const auto want = alone[group.rank()]->parameters(), got = own->parameters();
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>());
    }
  });
}

// Activations and their gradients travel in bf16.
class Cast : public nn::Module {
 public:
  Cast(std::shared_ptr<nn::Module> layer, bp_dtype result) : layer_(layer), result_(result) {
    add_module("layer", std::move(layer));
  }
  Tensor forward(const Tensor& x) override { return (*layer_)(x.to(BP_F32)).to(result_); }

 private:
  std::shared_ptr<nn::Module> layer_;
  bp_dtype result_;
};

TEST(Pipeline, SendsActivationsInTheirDtype) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto both = [] {
      const auto layers = layers_of(2);
      return std::vector<std::shared_ptr<nn::Module>>{std::make_shared<Cast>(layers[0], BP_BF16),
                                                      std::make_shared<Cast>(layers[1], BP_F32)};
    };
    const Tensor x = input(4, 5, 77), targets = input(4, kWidth, 78);
    const auto alone = both();
    loss_to((*alone[1])((*alone[0])(x)), targets).backward();
    const auto own = both()[group.rank()];
    PipelineParallel pipeline({own}, loss_to, group,
                              {.schedule = make_1f1b_schedule(2, 1),
                               .activation_shape = {kWidth},
                               .activation_dtype = BP_BF16});
    pipeline.forward_backward(x, targets);
    expect_equal_bits(gradients_of(*own), gradients_of(*alone[group.rank()]));
  });
}

// Counts how many graphs of a layer are alive.
class Counted : public nn::Module {
 public:
  explicit Counted(std::shared_ptr<nn::Module> layer) : layer_(layer) {
    add_module("layer", std::move(layer));
  }
  Tensor forward(const Tensor& x) override {
    // The graph of the first stage needs a leaf, too.
    const Tensor leaf = x.requires_grad() ? x : x.detach().set_requires_grad();
    largest = std::max(largest, ++alive);
    const std::shared_ptr<void> token(this, [](Counted* counted) { --counted->alive; });
    const auto keep = [token](const Tensor& gradient) { return std::vector<Tensor>{gradient}; };
    return (*layer_)(with_gradient("counted", {&leaf, 1}, leaf.detach(), keep));
  }

  uint32_t alive = 0, largest = 0;

 private:
  std::shared_ptr<nn::Module> layer_;
};

TEST(Pipeline, KeepsTheGraphsOfAsManyMicroBatchesAsTheScheduleSays) {
  for (const char* name : {"gpipe", "1f1b", "zb"}) {
    const PipelineSchedule schedule = make_pipeline_schedule(name, 3, 8);
    run_ranks(3, [&](ProcessGroup& group) {
      const auto own = std::make_shared<Counted>(layers_of(3)[group.rank()]);
      PipelineParallel pipeline({own}, loss_to, group,
                                {.schedule = schedule, .activation_shape = {kWidth}});
      pipeline.forward_backward(input(kRows, 5, 77), input(kRows, kWidth, 78));
      EXPECT_EQ(own->largest, largest_alive_counts(schedule)[group.rank()]) << name;
      EXPECT_EQ(own->alive, 0u) << name;
    });
  }
}

// ---- Errors ------------------------------------------------------------------------------------

TEST(Pipeline, TellsAllRanksWhatDiffers) {
  run_ranks(2, [](ProcessGroup& group) {
    const bool is_second = group.rank() == 1;
    const auto layers = layers_of(2);
    PipelineParallel::Loss loss = loss_to;
    std::vector<std::shared_ptr<nn::Module>> own{layers[group.rank()]};
    const auto made = [&](const PipelineOptions& options) {
      return message_of(BP_INVALID_ARGUMENT,
                        [&] { PipelineParallel pipeline(own, loss, group, options); });
    };
    const PipelineOptions good{.schedule = make_1f1b_schedule(2, 2), .activation_shape = {kWidth}};
    PipelineOptions other = good;
    if (is_second) other.schedule = make_1f1b_schedule(2, 4);
    EXPECT_EQ(made(other),
              "PipelineParallel: the schedule of rank 0 is F0.0 F1.0 B0.0 F2.0 B1.0 F3.0 B2.0 B3.0 "
              "on rank 1 and F0.0 F1.0 B0.0 B1.0 on rank 0");
    other = good;
    if (is_second) other.activation_shape = {kWidth, 2};
    EXPECT_EQ(
        made(other),
        "PipelineParallel: option 0 is activations of f32 (6, 2) behind the rows on rank 1 and "
        "activations of f32 (6,) behind the rows on rank 0");
    const std::string begin = "PipelineParallel: rank 1 of 2 of the group 'world': ";
    if (is_second) own.push_back(own[0]);
    EXPECT_EQ(
        made(good),
        begin + "there are 2 stages; allowed: 1, which the schedule '1f1b' has for this rank");
    own = {is_second ? nullptr : layers[0]};
    EXPECT_EQ(made(good), begin + "a stage is NULL; allowed: modules");
    own = {layers[group.rank()]};
    loss = {};
    EXPECT_EQ(made(good),
              begin + "there is no loss; allowed: a function, on the rank of the last stage");
    loss = loss_to;
    other = good;
    if (is_second) other.schedule.ranks[0].pop_back();
    EXPECT_EQ(made(other),
              begin +
                  "the schedule '1f1b': the backward of the input of micro-batch 1 at stage 0 "
                  "is missing on rank 0");
    other = good;
    if (is_second) other.activation_dtype = BP_I32;
    EXPECT_EQ(made(other), begin + "activation_dtype is i32; allowed: f16, bf16, f32, f64");
    other = good;
    if (is_second) other.activation_shape = {-1};
    EXPECT_EQ(made(other), begin + "activation_shape is (-1,); allowed: extents of 0 and above");
    other.schedule = make_1f1b_schedule(3, 2);
    expect_part(made(other), "is for 3 ranks; allowed: 2, the size of the group");
  });
}

TEST(Pipeline, TellsAllRanksWhichCallDiffers) {
  run_ranks(2, [](ProcessGroup& group) {
    const bool is_second = group.rank() == 1;
    const auto own = layers_of(2)[group.rank()];
    PipelineParallel pipeline({own}, loss_to, group,
                              {.schedule = make_1f1b_schedule(2, 2), .activation_shape = {kWidth}});
    const auto called = [&](int64_t rows, int64_t target_rows, bool has_backward = true) {
      return message_of(BP_INVALID_ARGUMENT, [&] {
        const Tensor x = input(rows, 5, 1), targets = input(target_rows, kWidth, 2);
        has_backward ? pipeline.forward_backward(x, targets) : pipeline.forward(x, targets);
      });
    };
    const std::string begin = "PipelineParallel: rank 1";
    EXPECT_EQ(called(is_second ? 8 : 4, 4),
              begin +
                  " calls forward_backward() with 8 rows and rank 0 calls forward_backward() "
                  "with 4 rows; allowed: the same on all ranks");
    EXPECT_EQ(called(4, 4, is_second),
              begin +
                  " calls forward_backward() with 4 rows and rank 0 calls forward() with 4 "
                  "rows; allowed: the same on all ranks");
    EXPECT_EQ(called(is_second ? 5 : 4, 4),
              begin +
                  " of 2 of the group 'world': x has the shape (5, 5); allowed along axis "
                  "0: a positive multiple of 2, the number of micro-batches");
    expect_part(called(4, is_second ? 3 : 4), "targets has the shape (3, 6); allowed along axis 0");
    expect_part(called(is_second ? 0 : 4, 4), "x has the shape (0, 5); allowed along axis 0");
    const auto without_targets = message_of(BP_INVALID_ARGUMENT, [&] {
      pipeline.forward(input(4, 5, 1), is_second ? Tensor() : input(4, kWidth, 2));
    });
    expect_part(without_targets, "targets is empty; allowed: a tensor, on every rank");
    EXPECT_GT(pipeline.forward(input(4, 5, 1), input(4, kWidth, 2)).item<float>(), 0)
        << "the pipeline still works";
  });
}

// Calls a function in front of a layer.
class Interrupted : public nn::Module {
 public:
  Interrupted(std::shared_ptr<nn::Module> layer, std::function<Tensor(const Tensor&)> call)
      : layer_(layer), call_(std::move(call)) {
    add_module("layer", std::move(layer));
  }
  Tensor forward(const Tensor& x) override { return call_((*layer_)(x)); }

 private:
  std::shared_ptr<nn::Module> layer_;
  std::function<Tensor(const Tensor&)> call_;
};

// Runs a step on each rank, where stage 1 of 3 has `call` behind its layer. Returns what each rank
// threw.
std::vector<std::string> messages_of_step(const std::function<Tensor(const Tensor&)>& call) {
  const std::vector<Device>& devices = test_devices();
  auto groups =
      ProcessGroup::make_local({devices.data(), 3}, {.timeout = std::chrono::seconds(20)});
  return messages_of_ranks(3, [&](uint32_t rank) {
    const DeviceGuard guard(devices[rank]);
    const Stream own_stream(devices[rank]);  // It fails with the group.
    const StreamGuard stream_guard(own_stream);
    std::shared_ptr<nn::Module> own = layers_of(3)[rank];
    if (rank == 1) own = std::make_shared<Interrupted>(own, call);
    PipelineParallel pipeline({own}, loss_to, groups[rank],
                              {.schedule = make_1f1b_schedule(3, 4), .activation_shape = {kWidth}});
    pipeline.forward_backward(input(kRows, 5, 1), input(kRows, kWidth, 2)).item<float>();
  });
}

TEST(Pipeline, EndsOnAllRanksWhenAStageFails) {
  int count = 0;
  const auto messages = messages_of_step([&](const Tensor& y) -> Tensor {
    if (++count == 3) throw std::runtime_error("the layer gave up");
    return y;
  });
  EXPECT_EQ(messages[1], "PipelineParallel: rank 1 of 3 of the group 'world': the layer gave up");
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    expect_part(messages[rank], "rank 1 aborted the group");
  }
}

TEST(Pipeline, RefusesResultsThatDoNotFit) {
  EXPECT_EQ(messages_of_step([](const Tensor& y) { return y.narrow(1, 0, 4); })[1],
            "PipelineParallel: rank 1 of 3 of the group 'world': forward of micro-batch 0 at stage "
            "1: the result is f32 (4, 4) on " +
                std::string(test_devices()[1].name()) + "; allowed: f32 (4, 6) on " +
                test_devices()[1].name() + ", as the options say");
  expect_part(messages_of_step([](const Tensor& y) { return y.detach(); })[1],
              "forward of micro-batch 0 at stage 1: the result depends on nothing that requires a "
              "gradient");
  const Tensor other = zeros({4, kWidth}, BP_F32, test_devices()[1]).set_requires_grad();
  expect_part(messages_of_step([&](const Tensor&) { return other * 2; })[1],
              "backward of micro-batch 0 at stage 1: the result does not depend on the input");
}

TEST(Pipeline, EndsWithASentenceWhenARankIsGone) {
  const std::vector<Device>& devices = test_devices();
  auto groups =
      ProcessGroup::make_local({devices.data(), 2}, {.timeout = std::chrono::milliseconds(500)});
  const auto messages = messages_of_ranks(2, [&](uint32_t rank) {
    const DeviceGuard guard(devices[rank]);
    const Stream own_stream(devices[rank]);
    const StreamGuard stream_guard(own_stream);
    const auto own = layers_of(2)[rank];
    PipelineParallel pipeline({own}, loss_to, groups[rank],
                              {.schedule = make_1f1b_schedule(2, 2), .activation_shape = {kWidth}});
    const Tensor x = input(4, 5, 1), targets = input(4, kWidth, 2);
    pipeline.forward_backward(x, targets).item<float>();
    if (rank == 1) return;
    pipeline.forward_backward(x, targets);
  });
  expect_part(messages[0], "rank 0 of 2 of the group 'world'");
  expect_part(messages[0], "rank 1");
}

}  // namespace
}  // namespace bp::distributed
