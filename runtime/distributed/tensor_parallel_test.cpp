#include "backplane/runtime/distributed/tensor_parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backplane/runtime/distributed/fsdp.hpp"
#include "backplane/runtime/distributed/mesh.hpp"
#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

using nn::Linear;

double difference(const Tensor& a, const Tensor& b) {
  const NoGradGuard no_grad;
  return amax(abs(a.detach() - b.detach())).item<double>();
}

double largest_difference(const Tensor& got, const std::vector<float>& want) {
  const std::vector<float> values = got.detach().to_vector<float>();
  EXPECT_EQ(values.size(), want.size());
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(double{values[i]} - want[i]));
  }
  return largest;
}

TEST(Mesh, HasAGroupAlongEachAxis) {
  run_ranks(4, [](ProcessGroup& world) {
    const DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
    const uint32_t rank = world.rank();
    EXPECT_EQ(mesh.group("data").rank(), rank / 2);
    EXPECT_EQ(mesh.group("tensor").rank(), rank % 2);
    EXPECT_EQ(mesh.group("tensor").size(), 2u);
    EXPECT_EQ(mesh.world().size(), 4u);
    const auto sum_along = [&](const std::string& axis) {
      const Tensor x = full({1}, rank, BP_F32);
      mesh.group(axis).all_reduce(x).join();
      return x.item<int>();
    };
    EXPECT_EQ(sum_along("data"), static_cast<int>(2 * (rank % 2) + 2)) << "0 and 2, or 1 and 3";
    EXPECT_EQ(sum_along("tensor"), static_cast<int>(4 * (rank / 2) + 1)) << "0 and 1, or 2 and 3";
    const DeviceMesh three(world, {{"a", 2}, {"b", 1}, {"c", 2}});
    EXPECT_EQ(three.group("b").size(), 1u);
    EXPECT_EQ(three.group("c").rank(), rank % 2);
  });
}

TEST(Mesh, NamesWrongAxes) {
  run_ranks(4, [](ProcessGroup& world) {
    const auto made_of = [&](const std::vector<MeshAxis>& axes) {
      return thrown_by([&] { DeviceMesh mesh(world, axes); });
    };
    const std::string begin = "DeviceMesh: rank 0 of 4 of the group 'world': ";
    EXPECT_EQ(made_of({{"data", 2}, {"tensor", 3}}),
              begin +
                  "the axes are 'data' 2, 'tensor' 3, for 4 ranks; allowed: sizes whose "
                  "product is the number of ranks");
    EXPECT_EQ(made_of({}), begin +
                               "the axes are none, for 4 ranks; allowed: sizes whose product "
                               "is the number of ranks");
    EXPECT_EQ(made_of({{"a", 2}, {"a", 2}}),
              begin + "two axes have the name 'a'; allowed: different names");
    const bool is_third = world.rank() == 2;
    EXPECT_EQ(made_of({{"a", is_third ? 2u : 1u}, {"b", is_third ? 2u : 4u}}),
              "DeviceMesh: the mesh 0 is 'a' 2, 'b' 2 on rank 2 and 'a' 1, 'b' 4 on rank 0");
    const DeviceMesh mesh(world, {{"data", 4}});
    EXPECT_EQ(thrown_by([&] { mesh.group("tensor"); }),
              "DeviceMesh: no axis has the name 'tensor'; allowed: 'data' 4");
  });
}

// A plain model and the same model in parts, whose layers have the same names.
struct Models {
  std::shared_ptr<nn::Module> plain, parallel;
};

// Makes each with the same seed, so that both draw the same values.
template <typename Plain, typename Parallel>
Models make(const Plain& plain, const Parallel& parallel) {
  Models models;
  current_device().generator().set_seed(5);
  models.plain = plain();
  current_device().generator().set_seed(5);
  models.parallel = parallel();
  return models;
}

void expect_near_states(const TensorMap& got, const TensorMap& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    ASSERT_EQ(got.at(name).shape(), tensor.shape()) << name;
    EXPECT_LE(difference(got.at(name), tensor), bound) << name;
  }
}

TensorMap gradients_by_name(const nn::Module& module) {
  TensorMap map;
  for (const auto& [name, tensor] : module.named_parameters()) map[name] = tensor.grad();
  return map;
}

// Compares result, gradients of the input and of the parameters.
void expect_same(const Models& models, const ProcessGroup& group, const Tensor& x, double bound) {
  const ParallelLayout layout(*models.parallel, group);
  expect_near_states(layout.whole(models.parallel->state_dict()), models.plain->state_dict(), 0);
  const bool is_float = x.dtype() == BP_F32;
  const Tensor a = x.clone(), b = x.clone();
  if (is_float) {
    a.set_requires_grad();
    b.set_requires_grad();
  }
  const Tensor y = (*models.plain)(a), z = (*models.parallel)(b);
  EXPECT_LT(difference(y, z), bound);
  loss_of(y).backward();
  loss_of(z).backward();
  if (is_float) {
    EXPECT_LT(difference(a.grad(), b.grad()), bound);
  }
  expect_near_states(layout.whole(gradients_by_name(*models.parallel)),
                     gradients_by_name(*models.plain), bound);
  const double want = squared_grad_norm(models.plain->parameters()).item<double>();
  EXPECT_NEAR(layout.squared_grad_norm(models.parallel->parameters()).item<double>(), want,
              1e-5 * want);
}

TEST(TensorParallel, ComputesPairsOfLinearLayers) {
  using Layers = std::vector<std::shared_ptr<nn::Module>>;
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const auto models = make(
          [] {
            return std::make_shared<nn::Sequential>(Layers{std::make_shared<Linear>(6, 10),
                                                           std::make_shared<nn::Gelu>(),
                                                           std::make_shared<Linear>(10, 5)});
          },
          [&] {
            return std::make_shared<nn::Sequential>(Layers{
                std::make_shared<ColumnParallelLinear>(6, 10, group), std::make_shared<nn::Gelu>(),
                std::make_shared<RowParallelLinear>(10, 5, group)});
          });
      expect_same(models, group, input(4, 6, 3), 1e-6);
    });
  }
}

TEST(TensorParallel, ComputesABlockOfATransformer) {
  for (const uint32_t ranks : {2u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const nn::TransformerBlockOptions options{.attention = {.causal = Causal::kTopLeft}};
      const auto models =
          make([&] { return std::make_shared<nn::TransformerBlock>(16, 4, options); },
               [&] { return std::make_shared<ParallelTransformerBlock>(16, 4, group, options); });
      expect_same(models, group, input(6, 16, 3).view({2, 3, 16}), 1e-5);
    });
  }
}

TEST(TensorParallel, LooksUpAVocabularyInParts) {
  for (const uint32_t ranks : {2u, 3u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const auto models =
          make([] { return std::make_shared<nn::Embedding>(7, 4); },
               [&] { return std::make_shared<VocabularyParallelEmbedding>(7, 4, group); });
      expect_same(models, group, from_host<int64_t>({0, 6, 3, 3, 2, 5}, {2, 3}), 1e-6);
    });
  }
}

TEST(TensorParallel, ComputesCrossEntropyInParts) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const Tensor whole = (input(5, 7, 3) * 20).set_requires_grad();
      const Part own = part_of(7, group);
      const Tensor part = whole.detach().narrow(1, own.begin, own.count()).clone();
      part.set_requires_grad();
      const Tensor targets = from_host<int64_t>({0, 6, 3, 2, 5}, {5});
      const Tensor want = cross_entropy(whole, targets);
      const Tensor got = parallel_cross_entropy(part, targets, 7, group);
      EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-6);
      (want * 3).backward();
      (got * 3).backward();
      EXPECT_LT(difference(part.grad(), whole.grad().narrow(1, own.begin, own.count())), 1e-6);
    });
  }
}

// Trains a model of two axes: shards over "data", parts over "tensor".
TEST(TensorParallel, TrainsWithShardedParts) {
  constexpr uint32_t kSteps = 4;
  // The gradient of a bias of keys is 0 but for rounding, which a smaller eps would magnify.
  constexpr AdamWOptions kOptions{.eps = 1e-4};
  using Layers = std::vector<std::shared_ptr<nn::Module>>;
  const auto batch = [](uint32_t step, uint32_t part) {
    return input(6, 16, 10 * step + part).view({2, 3, 16});
  };
  std::map<std::string, std::vector<float>> want, want_state;
  {
    const DeviceGuard guard(test_devices()[0]);
    current_device().generator().set_seed(5);
    auto model =
        std::make_shared<nn::Sequential>(Layers{std::make_shared<nn::TransformerBlock>(16, 2),
                                                std::make_shared<nn::TransformerBlock>(16, 2)});
    AdamW optimizer(model->parameters(), kOptions);
    for (uint32_t step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      ((loss_of((*model)(batch(step, 0))) + loss_of((*model)(batch(step, 1)))) / 2).backward();
      clip_grad_norm_on_device(model->parameters(), 0.1);
      optimizer.step();
    }
    for (const auto& [name, tensor] : model->state_dict()) want[name] = tensor.to_vector<float>();
    for (const auto& [name, tensor] : optimizer.state_dict()) {
      if (name != "step_counts") want_state[name] = tensor.to_vector<float>();
    }
  }
  for (const int stage : {1, 3}) {
    run_ranks(4, [&](ProcessGroup& world) {
      const DeviceMesh mesh(world, {{"data", 2}, {"tensor", 2}});
      const ProcessGroup data = mesh.group("data"), tensor = mesh.group("tensor");
      current_device().generator().set_seed(5);
      const Layers blocks{std::make_shared<ParallelTransformerBlock>(16, 2, tensor),
                          std::make_shared<ParallelTransformerBlock>(16, 2, tensor)};
      auto model = std::make_shared<nn::Sequential>(blocks);
      const ParallelLayout layout(*model, tensor);
      FullyShardedDataParallel fsdp(model, blocks, data, {.stage = stage});
      AdamW optimizer(fsdp.parameters(), kOptions);
      for (uint32_t step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        loss_of(fsdp(batch(step, data.rank()))).backward();
        const Tensor squares = layout.squared_grad_norm(fsdp.parameters());
        data.all_reduce(squares).join();
        scale_grads_to_norm(fsdp.parameters(), squares, 0.1);
        optimizer.step();
      }
      const TensorMap weights = fsdp.state(world.device());
      const TensorMap state = fsdp.whole_optimizer_state(optimizer.state_dict(), world.device());
      if (data.rank() != 0) return;
      const TensorMap whole = layout.whole(weights), whole_state = layout.whole(state);
      for (const auto& [name, values] : want) {
        EXPECT_LT(largest_difference(whole.at(name), values), 2e-5) << name;
      }
      for (const auto& [name, values] : want_state) {
        EXPECT_LT(largest_difference(whole_state.at(name), values), 1e-5) << name;
      }
      const TensorMap parts = layout.part(whole);
      for (const auto& [name, value] : weights) {
        EXPECT_EQ(parts.at(name).to_vector<float>(), value.to_vector<float>()) << name;
      }
    });
  }
}

TEST(TensorParallel, NamesWhatDoesNotFit) {
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_EQ(thrown_by([&] { ParallelTransformerBlock block(12, 3, group); }),
              "ParallelTransformerBlock: head_count is 3; allowed: multiples of the number of "
              "ranks, which is 2");
    EXPECT_EQ(thrown_by([&] { ParallelTransformerBlock block(12, 2, group, {.hidden_width = 7}); }),
              "ParallelTransformerBlock: hidden_width is 7; allowed: multiples of the number of "
              "ranks, which is 2");
    EXPECT_EQ(thrown_by([&] { ColumnParallelLinear layer(3, 1, group); }),
              "parameter 'weight' of the shape (1, 3) is cut over 2 ranks; allowed: at least one "
              "row for each rank");
    EXPECT_EQ(
        thrown_by([&] {
          parallel_cross_entropy(zeros({3, 7}, BP_F32), zeros({3}, BP_I64), 7, group);
        }),
        "parallel_cross_entropy: logits have the shape (3, 7) and targets (3,); allowed: (n, " +
            std::to_string(group.rank() == 0 ? 3 : 4) + ") and (n,), for this part of 7 classes");
    const ColumnParallelLinear layer(3, 4, group);
    const ParallelLayout layout(layer, group);
    EXPECT_EQ(thrown_by([&] {
                layout.part({{"weight", zeros({5, 3}, BP_F32)}});
              }),
              "ParallelLayout: rank " + std::to_string(group.rank()) +
                  " of 2 of the group 'world': 'weight' has the shape (5, 3); allowed: the extent "
                  "4 along axis 0");
    EXPECT_EQ(thrown_by([&] {
                layout.place(pieces_of({{"weight", zeros({4, 3}, BP_F32)}}));
              }),
              "ParallelLayout: rank " + std::to_string(group.rank()) +
                  " of 2 of the group 'world': 'weight' has the shape (4, 3); allowed: the extent "
                  "2 along axis 0");
    EXPECT_EQ(thrown_by([&] { layout.squared_grad_norm({}); }),
              "ParallelLayout: rank " + std::to_string(group.rank()) +
                  " of 2 of the group 'world': there are 0 parameters; allowed: the 2 of the "
                  "model");
  });
}

}  // namespace
}  // namespace bp::distributed
