// Tests what training in a pipeline needs besides: whole states, and averages over replicas.
#include <gtest/gtest.h>

#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/distributed/pipeline.hpp"
#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

TEST(PipelineLayout, MakesWholeStatesAndParts) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto model = small_model();
    set_values(*model, 3);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model->named_parameters()) names.push_back(name);
    // Rank 0 has the first and the last layer, and rank 1 the middle one.
    struct Part : nn::Module {
      using nn::Module::add_module;
      Tensor forward(const Tensor& x) override { return x; }
    } own;
    for (const auto& [name, layer] : model->named_modules()) {
      if ((name == "2") == (group.rank() == 1)) own.add_module(name, layer);
    }
    const PipelineLayout layout(own, names, group);
    AdamW optimizer(own.parameters()), whole_optimizer(model->parameters());
    for (const Tensor& p : model->parameters()) p.set_grad(p.detach() * 2);
    optimizer.step();
    set_values(*model, 3);
    for (const Tensor& p : model->parameters()) p.set_grad(p.detach() * 2);
    whole_optimizer.step();
    for (const uint32_t root : {0u, 1u}) {
      const TensorMap weights = layout.whole(own.state_dict(), root);
      const TensorMap state = layout.whole(optimizer.state_dict(), root);
      EXPECT_EQ(weights.empty(), group.rank() != root);
      if (group.rank() != root) continue;
      const auto expect_equal = [](const TensorMap& got, const TensorMap& want) {
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [name, tensor] : want) {
          ASSERT_TRUE(got.contains(name)) << name;
          EXPECT_EQ(got.at(name).to(BP_F32).to_vector<float>(),
                    tensor.detach().to(other_test_device()).to(BP_F32).to_vector<float>())
              << name;
        }
      };
      EXPECT_EQ(weights.size(), 6u);
      expect_equal(layout.part(weights), own.state_dict());
      expect_equal(state, whole_optimizer.state_dict());
      expect_equal(layout.part(state), optimizer.state_dict());
    }
  });
}

// Both ranks have the first layer, and each has one of the others.
TEST(PipelineLayout, MakesWholeStatesOfSharedLayers) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto model = small_model();
    set_values(*model, 3);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model->named_parameters()) names.push_back(name);
    struct Part : nn::Module {
      using nn::Module::add_module;
      Tensor forward(const Tensor& x) override { return x; }
    } own;
    for (const auto& [name, layer] : model->named_modules()) {
      if (name == "0" || (name == "2") == (group.rank() == 1)) own.add_module(name, layer);
    }
    EXPECT_EQ(message_of(BP_INVALID_ARGUMENT, [&] { PipelineLayout layout(own, names, group); }),
              "PipelineLayout: 2 ranks have the parameter '0.weight'; allowed: one rank");
    const PipelineLayout layout(own, names, group, true);
    AdamW optimizer(own.parameters()), whole_optimizer(model->parameters());
    for (const Tensor& p : model->parameters()) p.set_grad(p.detach() * 2);
    optimizer.step();
    set_values(*model, 3);
    whole_optimizer.step();
    const TensorMap want = whole_optimizer.state_dict(), got = layout.whole(optimizer.state_dict());
    for (const auto& [name, tensor] : layout.part(want)) {
      EXPECT_EQ(tensor.to(BP_F32).to_vector<float>(),
                optimizer.state_dict().at(name).to(BP_F32).to_vector<float>())
          << name;
    }
    if (group.rank() != 0) return;
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, tensor] : want) {
      EXPECT_EQ(got.at(name).to(BP_F32).to_vector<float>(), tensor.to(BP_F32).to_vector<float>())
          << name;
    }
  });
}

TEST(PipelineLayout, TellsAllRanksWhichNamesAreWrong) {
  run_ranks(2, [](ProcessGroup& group) {
    const nn::Linear own(2, 3);
    const auto made = [&](const std::vector<std::string>& names) {
      return message_of(BP_INVALID_ARGUMENT, [&] { PipelineLayout layout(own, names, group); });
    };
    EXPECT_EQ(made({"weight", "bias"}),
              "PipelineLayout: 2 ranks have the parameter 'weight'; allowed: one rank");
    EXPECT_EQ(made({"weight"}),
              "PipelineLayout: rank 0 has the parameter 'bias'; allowed: the names of the whole "
              "model");
    EXPECT_EQ(made({group.rank() == 0 ? "weight" : "scale"}),
              "PipelineLayout: the name 0 is 'scale' on rank 1 and 'weight' on rank 0");
  });
}

TEST(AverageGradients, AveragesOverTheRanks) {
  run_ranks(4, [](ProcessGroup& group) {
    const nn::Linear layer(3, 5);
    const std::vector<Tensor> parameters = layer.parameters();
    for (const Tensor& p : parameters) {
      p.set_grad(full(p.shape(), 1 << group.rank(), BP_F32));
    }
    const Tensor before = parameters[0].grad();
    average_gradients(parameters, group);
    EXPECT_EQ(before.to_vector<float>(), std::vector<float>(15, 15.0f / 4));
    EXPECT_EQ(parameters[1].grad().to_vector<float>(), std::vector<float>(5, 15.0f / 4));
    parameters[1].set_grad({});
    expect_part(message_of(BP_INVALID_ARGUMENT, [&] { average_gradients(parameters, group); }),
                ": parameter 1 of the shape (5,) has no gradient; allowed: a gradient for each");
  });
}

}  // namespace
}  // namespace bp::distributed
