#include <gtest/gtest.h>

#include "runtime/distributed/test_fsdp.hpp"

namespace bp::distributed {
namespace {

using Names = std::vector<std::vector<std::string>>;

// Two layers with one weight, and a layer that is called twice.
class Shared : public nn::Module {
 public:
  Shared() {
    add_module("first", first = std::make_shared<Linear>(4, 4, false));
    add_module("inner", inner = std::make_shared<Tied>(first->parameters()[0]));
    add_module("last", last = std::make_shared<Linear>(4, 4));
  }
  Tensor forward(const Tensor& x) override {
    return (*last)(bp::gelu((*last)((*inner)((*first)(x)))));
  }

  class Tied : public nn::Module {
   public:
    explicit Tied(const Tensor& weight) : weight_(add_parameter("weight", weight)) {
      bias_ = add_parameter("bias", zeros({4}, BP_F32));
      add_module("deep", deep = std::make_shared<Linear>(4, 4));
    }
    Tensor forward(const Tensor& x) override { return (*deep)(linear(x, weight_, bias_)); }
    std::shared_ptr<Linear> deep;

   private:
    Tensor weight_, bias_;
  };
  std::shared_ptr<Linear> first, last;
  std::shared_ptr<Tied> inner;
};

TEST(Fsdp, TakesSharedAndNestedUnits) {
  Bits want;
  run_ranks(2, [&](ProcessGroup& group) {
    auto model = std::make_shared<Shared>();
    set_values(*model, 1);
    DistributedDataParallel ddp(model, group);
    loss_of(ddp(input(3, 4, group.rank()))).backward();
    if (group.rank() == 0) want = bp::distributed::gradients_of(*model);
  });
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto model = std::make_shared<Shared>();
      set_values(*model, 1);
      FullyShardedDataParallel fsdp(model,
                                    {model->first, model->inner, model->inner->deep, model->last},
                                    group, {.stage = stage});
      EXPECT_EQ(fsdp.unit_names(), (Names{{"first.weight"},
                                          {},
                                          {"inner.bias"},
                                          {"inner.deep.weight", "inner.deep.bias"},
                                          {"last.weight", "last.bias"}}));
      for (int step = 0; step < 3; ++step) {
        fsdp.zero_grad();
        loss_of(fsdp(input(3, 4, group.rank()))).backward();
        const Bits got = gradients_of(fsdp);
        if (group.rank() == 0) expect_equal_bits(got, want);
      }
      EXPECT_EQ(fsdp.state(group.device()).size(), group.rank() == 0 ? 7u : 0u)
          << "each name of a shared parameter";
    });
  }
}

TEST(Fsdp, LeavesFrozenParametersAsTheyAre) {
  for (const int stage : {1, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto whole = small_model(), sharded = small_model();
      for (const auto& model : {whole, sharded}) {
        set_values(*model, 1);
        // The layer "2" is frozen, and so is the bias of the last one.
        for (const size_t i : {2u, 3u, 5u}) model->parameters()[i].set_requires_grad(false);
      }
      DistributedDataParallel ddp(whole, group);
      FullyShardedDataParallel fsdp(sharded, units_of(*sharded), group, {.stage = stage});
      std::vector<Tensor> trained;
      for (const Tensor& shard : fsdp.parameters()) {
        if (shard.requires_grad()) trained.push_back(shard);
      }
      EXPECT_EQ(trained.size(), 3u);
      AdamW optimizer(trained);
      std::vector<Tensor> others;
      for (const Tensor& tensor : whole->parameters()) {
        if (tensor.requires_grad()) others.push_back(tensor);
      }
      AdamW other(others);
      for (uint32_t step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        other.zero_grad();
        const Tensor x = input(5, 7, 10 * step + group.rank());
        loss_of(ddp(x)).backward();
        loss_of(fsdp(x)).backward();
        optimizer.step();
        other.step();
        const Bits got = values_of(fsdp);
        if (group.rank() == 0) expect_equal_bits(got, values_of(*whole, whole->state_dict()));
      }
    });
  }
}

TEST(Fsdp, CountsParametersWithoutAGradientAsZeros) {
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      // Both branches are in the root unit, so the ranks may take different ones.
      auto model = std::make_shared<Branches>();
      FullyShardedDataParallel fsdp(model, {}, group, {.stage = stage});
      for (int step = 0; step < 3; ++step) {
        fsdp.zero_grad();
        model->takes_left = group.rank() == 0;
        bp::sum(fsdp(full({1, 2}, 1, BP_F32))).backward();
        const Bits got = gradients_of(fsdp);
        if (group.rank() == 0) {
          EXPECT_EQ(got, (Bits{{0.5f, 0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f, 0.5f}}));
        }
      }
    });
  }
}

TEST(Fsdp, RunsForwardWithoutBackward) {
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto whole = small_model(), sharded = small_model();
      set_values(*whole, 1);
      set_values(*sharded, 1);
      FullyShardedDataParallel fsdp(sharded, units_of(*sharded), group, {.stage = stage});
      AdamW optimizer(fsdp.parameters(), {.lr = 0.1});
      const Tensor x = input(5, 7, 1);
      const auto same = [&] {
        const NoGradGuard no_grad;
        return fsdp(x).to_vector<float>() == (*whole)(x).to_vector<float>();
      };
      EXPECT_TRUE(same());
      const Tensor unused = fsdp(x);
      EXPECT_TRUE(same());
      const Tensor first = fsdp(x), second = fsdp(x);  // Then one backward() for both.
      loss_of(first + second).backward();
      EXPECT_TRUE(same()) << "before the step";
      optimizer.step();
      EXPECT_FALSE(same()) << "behind the step";
      const TensorMap state = fsdp.state(test_devices()[0]);
      const TensorMap other = fsdp.state(test_devices()[1], 1);
      whole->load_state_dict(group.rank() == 0 ? state : other);
      EXPECT_TRUE(same());
    });
  }
}

TEST(Fsdp, FindsAStepBetweenForwardAndBackward) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = small_model();
    FullyShardedDataParallel fsdp(model, units_of(*model), group);
    AdamW optimizer(fsdp.parameters());
    const Tensor x = input(5, 7, 1);
    loss_of(fsdp(x)).backward();
    const Tensor loss = loss_of(fsdp(x));
    optimizer.step();
    const std::string text = thrown_by([&] { loss.backward(); });
    EXPECT_NE(text.find("was written in place since"), std::string::npos) << text;
    loss_of(fsdp(x)).backward();  // The model goes on.
  });
}

TEST(Fsdp, AddsNothingFromABackwardThatFailed) {
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto model = small_model();
      const Modules units = units_of(*model);
      FullyShardedDataParallel fsdp(model, units, group, {.stage = stage});
      bool fails = false;
      const nn::ForwardHook hook(units[0], "fail", {}, [&](const Tensor& y) {
        return with_gradient("fail", {&y, 1}, y.detach(), [&](const Tensor& gradient) {
          if (fails) throw Error(BP_ABORTED, "stop");
          return std::vector<Tensor>{gradient};
        });
      });
      const Tensor x = input(5, 7, group.rank());
      loss_of(fsdp(x)).backward();
      const Bits want = gradients_of(fsdp);
      for (int i = 0; i < 2; ++i) {
        fsdp.zero_grad();
        fails = true;
        EXPECT_EQ(thrown_by([&] { loss_of(fsdp(x)).backward(); }), "stop");
        fails = false;
        loss_of(fsdp(x)).backward();
        const Bits got = gradients_of(fsdp);
        if (group.rank() == 0) expect_equal_bits(got, want);
      }
    });
  }
}

}  // namespace
}  // namespace bp::distributed
