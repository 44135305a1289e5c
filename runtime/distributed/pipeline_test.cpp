#include "backplane/runtime/distributed/pipeline.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/distributed/mesh.hpp"
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
    for (const uint32_t micro_batches : {ranks, 8u}) {
      expect_reference(make_gpipe_schedule(ranks, micro_batches));
      expect_reference(make_1f1b_schedule(ranks, micro_batches));
      expect_reference(make_zero_bubble_schedule(ranks, micro_batches));
      expect_reference(make_interleaved_schedule(ranks, micro_batches, 2));
    }
  }
}

}  // namespace
}  // namespace bp::distributed
