#include <gtest/gtest.h>

#include <chrono>

#include "runtime/distributed/test_fsdp.hpp"

namespace bp::distributed {
namespace {

TEST(Fsdp, NamesWrongArguments) {
  run_ranks(2, [](ProcessGroup& group) {
    const bool is_second = group.rank() == 1;
    auto model = small_model();
    const Modules units = units_of(*model);
    const auto wrap = [&](const Modules& of, const FsdpOptions& options) {
      return thrown_by([&] { FullyShardedDataParallel fsdp(model, of, group, options); });
    };
    const std::string begin = "FullyShardedDataParallel: rank 1 of 2 of the group 'world': ";
    EXPECT_EQ(wrap(units, {.stage = is_second ? 4 : 3}),
              begin +
                  "stage is 4; allowed: 1 (shards the state of the optimizer), 2 (gradients as "
                  "well) and 3 (parameters as well)");
    EXPECT_EQ(wrap(units, {.compute_dtype = is_second ? bp_dtype{BP_I32} : bp_dtype{0}}),
              begin + "compute_dtype is i32; allowed: f16, bf16, f32, f64, or 0");
    const auto other = std::make_shared<Linear>(2, 2);
    EXPECT_EQ(wrap(is_second ? Modules{units[0], other} : units, {}),
              begin + "unit 1 is not a layer of the module; allowed: its layers, at any depth");
    EXPECT_EQ(wrap(is_second ? Modules{nullptr} : units, {}),
              begin + "unit 0 is a null pointer; allowed: a layer of the module");
    EXPECT_EQ(wrap(is_second ? Modules{model} : units, {}),
              begin +
                  "unit 0 is the module itself; allowed: a layer of it, since the rest of the "
                  "module is a unit always");
    EXPECT_EQ(wrap(is_second ? Modules{units[0], units[0]} : units, {}),
              begin + "unit 1 is given twice; allowed: once");
    FullyShardedDataParallel fsdp(model, units, group);
    const std::string both = "FullyShardedDataParallel: rank 0 of 2 of the group 'world': ";
    EXPECT_EQ(wrap(units, {}), both + "the module is wrapped already; allowed: to wrap it once");
    EXPECT_EQ(thrown_by([&] {
                FullyShardedDataParallel outer(std::make_shared<nn::Sequential>(Modules{model}), {},
                                               group);
              }),
              both + "layer '0' is wrapped already; allowed: to wrap it once");
    EXPECT_EQ(
        thrown_by([&] { FullyShardedDataParallel empty(std::make_shared<nn::Gelu>(), {}, group); }),
        both + "the module has no parameters; allowed: at least one");
  });
}

TEST(Fsdp, RefusesAModuleThatWasSharded) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Linear>(2, 2);
    { const FullyShardedDataParallel fsdp(model, {}, group); }
    EXPECT_EQ(thrown_by([&] { FullyShardedDataParallel again(model, {}, group); }),
              "FullyShardedDataParallel: rank 0 of 2 of the group 'world': parameter 'weight' has "
              "no memory: the module was sharded before; allowed: a module with its own "
              "parameters");
  });
}

TEST(Fsdp, NamesWhatDiffersBetweenTheRanks) {
  run_ranks(4, [](ProcessGroup& group) {
    const auto wrap = [&](const std::shared_ptr<nn::Module>& model, const Modules& units,
                          const FsdpOptions& options) {
      return thrown_by([&] { FullyShardedDataParallel fsdp(model, units, group, options); });
    };
    EXPECT_EQ(wrap(std::make_shared<Linear>(3, group.rank() == 2 ? 5 : 4), {}, {}),
              "FullyShardedDataParallel: the ranks differ: parameter 0 is 'weight' f32 (5, 3) on "
              "rank 2 and 'weight' f32 (4, 3) on rank 0");
    EXPECT_EQ(wrap(std::make_shared<Linear>(3, 4), {}, {.stage = group.rank() == 1 ? 2 : 3}),
              "FullyShardedDataParallel: the ranks differ: option 0 is stage 2 on rank 1 and stage "
              "3 on rank 0");
    auto model = small_model();
    Modules units = units_of(*model);
    if (group.rank() == 3) units.pop_back();
    EXPECT_EQ(wrap(model, units, {}),
              "FullyShardedDataParallel: the ranks differ: unit 1 is missing on rank 3 and '2' on "
              "rank 0");
  });
}

TEST(Fsdp, NamesUnitsThatRunInAnotherOrder) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Branches>();
    FullyShardedDataParallel fsdp(model, {model->left, model->right}, group);
    const Tensor x = full({1, 2}, 1, BP_F32);
    bp::sum(fsdp(x)).backward();
    model->takes_left = false;
    EXPECT_EQ(thrown_by([&] { fsdp(x); }),
              "FullyShardedDataParallel: rank " + std::to_string(group.rank()) +
                  " of 2 of the group 'world': forward() runs unit 'right', and the first "
                  "forward() ran unit 'left' there; allowed: one order of the units in all steps");
    model->takes_left = true;
    bp::sum(fsdp(x)).backward();  // The model goes on.
    auto other = std::make_shared<Branches>();
    FullyShardedDataParallel second(other, {other->left, other->right}, group);
    other->takes_left = group.rank() == 0;
    EXPECT_EQ(thrown_by([&] { second(x); }),
              "FullyShardedDataParallel: the ranks run the units in different orders: place 1 is "
              "unit 'right' on rank 1 and unit 'left' on rank 0");
  });
}

TEST(Fsdp, SaysThatAParameterIsNotWhole) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Linear>(2, 3, false);
    FullyShardedDataParallel fsdp(model, {}, group);
    const Tensor weight = model->parameters()[0];
    EXPECT_EQ(thrown_by([&] { weight.to_vector<float>(); }),
              "copy_to_host: f32 (3, 2) has no memory at present: it is a parameter whose parts "
              "lie on several ranks, and is whole only while its unit computes");
    const std::string text = thrown_by([&] { model->forward(full({1, 2}, 1, BP_F32)); });
    EXPECT_NE(text.find("linear: weight has elements and no buffer"), std::string::npos) << text;
  });
}

TEST(Fsdp, FailsWhereARankDies) {
  for (const int stage : {1, 2, 3}) {
    for (const bool dies_in_backward : {false, true}) {
      const auto start = std::chrono::steady_clock::now();
      run_ranks(2,
                [&](ProcessGroup& group) {
                  const Stream stream(group.device());  // It keeps the failure.
                  const StreamGuard guard(stream);
                  auto model = small_model();
                  FullyShardedDataParallel fsdp(model, units_of(*model), group, {.stage = stage});
                  AdamW optimizer(fsdp.parameters());
                  const auto step = [&] {
                    optimizer.zero_grad();
                    loss_of(fsdp(input(5, 7, 1))).backward();
                    optimizer.step();
                  };
                  step();
                  if (group.rank() == 1) {
                    if (dies_in_backward) fsdp(input(5, 7, 1));
                    return;
                  }
                  const std::string text = thrown_by([&] {
                    step();
                    synchronize_stream(group.device());
                  });
                  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
                },
                {.timeout = std::chrono::milliseconds(500)});
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    }
  }
}

}  // namespace
}  // namespace bp::distributed
