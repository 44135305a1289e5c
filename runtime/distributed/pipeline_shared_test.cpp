// Weights that stages on several ranks of a pipeline share.
#include <gtest/gtest.h>

#include <chrono>

#include "backplane/runtime/distributed/pipeline.hpp"
#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_trainee.hpp"

namespace bp::distributed {
namespace {

constexpr int64_t kWords = 9, kWidth = 6, kRows = 8;

// A weight (kWords, kWidth) that is an embedding at the first stage, and the head at the last one.
class Tied : public nn::Module {
 public:
  Tied(const Tensor& weight, bool is_head) : is_head_(is_head) {
    weight_ = add_parameter("words", weight);
    if (is_head_) bias_ = add_parameter("bias", zeros({kWords}, BP_F32));
  }
  Tensor forward(const Tensor& x) override {
    return is_head_ ? bp::matmul(x, weight_.transpose(0, 1)) + bias_ : bp::matmul(x, weight_);
  }

 private:
  const bool is_head_;
  Tensor weight_, bias_;
};

Tensor first_words(uint32_t seed = 5) { return input(kWords, kWidth, seed); }

std::shared_ptr<nn::Module> middle_layer(uint32_t number) {
  const auto layer = std::make_shared<nn::Linear>(kWidth, kWidth);
  set_values(*layer, number);
  return layer;
}

// The stages of a model whose first and last one have `embedding` and `head`.
std::vector<std::shared_ptr<nn::Module>> stages_of(uint32_t count, const Tensor& embedding,
                                                   const Tensor& head) {
  std::vector<std::shared_ptr<nn::Module>> stages{std::make_shared<Tied>(embedding, false)};
  for (uint32_t i = 1; i + 1 < count; ++i) stages.push_back(middle_layer(i));
  stages.push_back(std::make_shared<Tied>(head, true));
  return stages;
}

Tensor loss_to(const Tensor& y, const Tensor& targets) { return loss_of(y - targets); }
Tensor inputs() { return input(kRows, kWords, 77); }
Tensor targets() { return input(kRows, kWords, 78); }

void run_micro_batches(const std::vector<std::shared_ptr<nn::Module>>& stages, int64_t count) {
  const int64_t rows = kRows / count;
  for (int64_t i = 0; i < count; ++i) {
    Tensor y = inputs().narrow(0, i * rows, rows);
    for (const auto& stage : stages) y = (*stage)(y);
    loss_to(y, targets().narrow(0, i * rows, rows))
        .backward(full({}, 1.0 / static_cast<double>(count), BP_F32));
  }
}

std::vector<float> floats_of(const Tensor& tensor) { return tensor.detach().to_vector<float>(); }

// Trains on one device. Each step first adds up the gradients of both places, as the ranks do, and
// then both places together.
std::vector<std::vector<float>> words_on_one(uint32_t stage_count, int64_t micro_batches,
                                             int steps) {
  const DeviceGuard guard(test_devices()[0]);
  const Tensor embedding = first_words(), head = first_words();
  const auto stages = stages_of(stage_count, embedding, head);
  std::vector<Tensor> trained;
  for (const auto& stage : stages) {
    for (const Tensor& tensor : stage->parameters()) trained.push_back(tensor);
  }
  AdamW optimizer(trained, {.lr = 0.01});
  std::vector<std::vector<float>> words;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    run_micro_batches(stages, micro_batches);
    const NoGradGuard no_grad;
    const Tensor sum = embedding.grad() + head.grad();
    embedding.set_grad(sum);
    head.set_grad(sum.clone());
    optimizer.step();
    words.push_back(floats_of(embedding));
  }
  return words;
}

struct Rank {
  std::vector<std::shared_ptr<nn::Module>> stages;
  std::vector<std::pair<std::string, Tensor>> shared;
};

Rank make_rank(const PipelineSchedule& schedule, uint32_t rank) {
  const Tensor words = first_words();
  const auto all = stages_of(schedule.stage_count(), words, words);
  Rank made;
  for (const uint32_t stage : schedule.stages_of(rank)) {
    made.stages.push_back(all[stage]);
    const bool has_words = stage == 0 || stage + 1 == schedule.stage_count();
    if (has_words && made.shared.empty()) made.shared.emplace_back("words", words);
  }
  return made;
}

std::vector<Tensor> parameters_of(const Rank& rank) {
  std::vector<Tensor> all;
  for (const auto& stage : rank.stages) {
    for (const Tensor& tensor : stage->parameters()) all.push_back(tensor);
  }
  return all;
}

void expect_words(const PipelineSchedule& schedule) {
  SCOPED_TRACE(schedule.name);
  constexpr int kSteps = 3;
  const auto want = words_on_one(schedule.stage_count(), schedule.micro_batch_count, kSteps);
  run_ranks(schedule.rank_count(), [&](ProcessGroup& group) {
    const Rank rank = make_rank(schedule, group.rank());
    PipelineParallel pipeline(
        rank.stages, loss_to, group,
        {.schedule = schedule, .activation_shape = {kWidth}, .shared_weights = rank.shared});
    AdamW optimizer(parameters_of(rank), {.lr = 0.01});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      pipeline.forward_backward(inputs(), targets());
      optimizer.step();
      if (rank.shared.empty()) continue;
      EXPECT_EQ(floats_of(rank.shared[0].second), want[static_cast<size_t>(step)]);
    }
    for (const auto& [name, tensor] : rank.shared) {
      EXPECT_EQ(pipeline.is_copy(tensor), group.rank() > 0);
    }
  });
}

TEST(SharedWeights, TrainAsOnOneDeviceInEveryBit) {
  expect_words(make_gpipe_schedule(2, 4));
  expect_words(make_1f1b_schedule(4, 8));
  expect_words(make_zero_bubble_schedule(3, 4));
  expect_words(make_interleaved_schedule(2, 4, 2));
}

TEST(SharedWeights, AreCloseToOneWeightOnOneDevice) {
  const PipelineSchedule schedule = make_1f1b_schedule(3, 4);
  std::vector<float> want;
  {
    const DeviceGuard guard(test_devices()[0]);
    const Tensor words = first_words();
    run_micro_batches(stages_of(3, words, words), 4);
    want = floats_of(words.grad());
  }
  run_ranks(3, [&](ProcessGroup& group) {
    const Rank rank = make_rank(schedule, group.rank());
    PipelineParallel pipeline(
        rank.stages, loss_to, group,
        {.schedule = schedule, .activation_shape = {kWidth}, .shared_weights = rank.shared});
    // Gradients of several calls add up.
    for (int call = 1; call <= 2; ++call) {
      pipeline.forward_backward(inputs(), targets());
      if (rank.shared.empty()) continue;
      const std::vector<float> got = floats_of(rank.shared[0].second.grad());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], static_cast<float>(call) * want[i], 1e-6);
      }
    }
  });
}

// A rank's part of a model whose parameters have the names of the whole model.
class Part : public nn::Module {
 public:
  explicit Part(const Rank& rank, const PipelineSchedule& schedule, uint32_t own) {
    const std::vector<uint32_t> numbers = schedule.stages_of(own);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool has_words = numbers[i] == 0 || numbers[i] + 1 == schedule.stage_count();
      add_module(has_words ? "tied" : std::to_string(numbers[i]), rank.stages[i]);
    }
  }
  Tensor forward(const Tensor& x) override { return x; }
};

TEST(SharedWeights, AreSavedOnce) {
  const PipelineSchedule schedule = make_1f1b_schedule(3, 4);
  const std::vector<std::string> names{"tied.words", "1.weight", "1.bias", "tied.bias"};
  const ScratchFolder scratch;
  run_ranks(3, [&](ProcessGroup& group) {
    const Rank rank = make_rank(schedule, group.rank());
    const Part module(rank, schedule, group.rank());
    const PipelineLayout layout(module, names, group, true);
    PipelineParallel pipeline(
        rank.stages, loss_to, group,
        {.schedule = schedule, .activation_shape = {kWidth}, .shared_weights = rank.shared});
    AdamW optimizer(module.parameters(), {.lr = 0.01});
    pipeline.forward_backward(inputs(), targets());
    optimizer.step();
    std::vector<Piece> pieces;
    append_pieces(pieces, "model.", layout.place(pieces_of(module.state_dict())));
    append_pieces(pieces, "optimizer.", layout.place(pieces_of(optimizer.state_dict())));
    CheckpointFolder(scratch.file("run"), group).save(1, pieces);
  });
  Content content = content_of(scratch.file("run") + "/step_1");
  EXPECT_EQ(content.size(), names.size() * 3 + 1);
  const std::vector<float> want = words_on_one(3, 4, 1)[0];
  const std::vector<char>& got = content["model.tied.words"];
  ASSERT_EQ(got.size(), want.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0);
}

std::string made_with(const ProcessGroup& group, const std::function<void(Rank&)>& change) {
  const PipelineSchedule schedule = make_1f1b_schedule(3, 4);
  Rank rank = make_rank(schedule, group.rank());
  change(rank);
  return thrown_by([&] {
    PipelineParallel(
        rank.stages, loss_to, group,
        {.schedule = schedule, .activation_shape = {kWidth}, .shared_weights = rank.shared});
  });
}

TEST(SharedWeights, NameWhatDiffersBetweenTheRanks) {
  run_ranks(3, [](ProcessGroup& group) {
    const bool is_last = group.rank() == 2;
    EXPECT_EQ(made_with(group,
                        [&](Rank& rank) {
                          if (is_last) set_values(*rank.stages[0], 44);
                        }),
              "PipelineParallel: shared weight 'words' has other values on rank 2 than on rank 0; "
              "allowed: equal values when the pipeline is made");
    EXPECT_EQ(
        made_with(group,
                  [&](Rank& rank) {
                    if (is_last) rank.shared[0].second = rank.stages[0]->parameters()[1];
                  }),
        "PipelineParallel: shared weight 'words' is f32 (9,) on rank 2 and f32 (9, 6) on rank "
        "0; allowed: one shape and dtype");
    EXPECT_EQ(
        made_with(group,
                  [&](Rank& rank) {
                    if (is_last) rank.shared.clear();
                  }),
        "PipelineParallel: shared weight 'words' is on rank 0 alone; allowed: on two ranks or "
        "more");
    EXPECT_EQ(made_with(group,
                        [&](Rank& rank) {
                          if (is_last) rank.shared[0].second = first_words();
                        }),
              "PipelineParallel: rank 2 of 3 of the group 'world': shared weight 'words' is no "
              "parameter of a stage of this rank; allowed: parameters of its stages");
    EXPECT_EQ(made_with(group,
                        [&](Rank& rank) {
                          if (is_last) rank.shared.push_back(rank.shared[0]);
                        }),
              "PipelineParallel: rank 2 of 3 of the group 'world': shared weight 'words' is given "
              "twice; allowed: each name and tensor once");
  });
}

// A rank without the weight fails: those that have it must not wait for each other.
TEST(SharedWeights, EndWithTheStepThatFails) {
  class Fails : public nn::Module {
   public:
    Tensor forward(const Tensor&) override { throw Error(BP_INTERNAL, "no middle"); }
  };
  const PipelineSchedule schedule = make_1f1b_schedule(3, 4);
  const std::vector<Device>& devices = test_devices();
  std::vector<ProcessGroup> groups = ProcessGroup::make_local({devices.data(), 3});
  const auto messages = messages_of_ranks(3, [&](uint32_t own) {
    const DeviceGuard guard(devices[own]);
    Rank rank = make_rank(schedule, own);
    if (own == 1) rank.stages[0] = std::make_shared<Fails>();
    PipelineParallel pipeline(
        rank.stages, loss_to, groups[own],
        {.schedule = schedule, .activation_shape = {kWidth}, .shared_weights = rank.shared});
    pipeline.forward_backward(inputs(), targets()).item<float>();
  });
  expect_part(messages[1], "no middle");
  for (const uint32_t other : {0u, 2u}) expect_part(messages[other], "rank 1");
}

}  // namespace
}  // namespace bp::distributed
