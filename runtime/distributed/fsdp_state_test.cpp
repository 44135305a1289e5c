#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "runtime/distributed/test_fsdp.hpp"

namespace bp::distributed {
namespace {

// A state in host memory. The rank of one thread must not wait for the device of another.
struct HostTensor {
  std::vector<int64_t> shape;
  bp_dtype dtype;
  std::vector<uint8_t> bytes;
};
using HostState = std::map<std::string, HostTensor>;

HostState to_host(const TensorMap& state) {
  HostState host;
  for (const auto& [name, tensor] : state) {
    HostTensor& to = host[name] = {tensor.shape().to_vector(), tensor.dtype(), {}};
    to.bytes.resize(tensor.size_bytes());
    tensor.copy_to_host(to.bytes.data(), to.bytes.size());
  }
  return host;
}

TensorMap to_device(const HostState& host) {
  TensorMap state;
  for (const auto& [name, from] : host) {
    state[name] = from_host(from.bytes.data(), from.shape, from.dtype);
  }
  return state;
}

TEST(Fsdp, GoesOnFromAWholeState) {
  const Course course{.steps = 6};
  std::vector<Step> want;
  run_ranks(2, [&](ProcessGroup& group) {
    auto steps = train_fsdp(group, course, {});
    if (group.rank() == 0) want = std::move(steps);
  });
  HostState weights, state;
  run_ranks(2, [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 0);
    FullyShardedDataParallel fsdp(model, units_of(*model), group, {.stage = 2});
    AdamW optimizer(fsdp.parameters());
    for (uint32_t step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(fsdp(input_of(course, step, 0, group.rank()))).backward();
      optimizer.step();
    }
    const TensorMap own = fsdp.state(group.device());
    const TensorMap moments = fsdp.whole_optimizer_state(optimizer.state_dict(), group.device());
    EXPECT_EQ(own.empty(), group.rank() != 0);
    if (group.rank() == 0) std::tie(weights, state) = std::tuple(to_host(own), to_host(moments));
  });
  {
    // The states are those of a model that is not sharded.
    const DeviceGuard guard(test_devices()[0]);
    auto model = small_model();
    model->load_state_dict(to_device(weights));
    AdamW(model->parameters()).load_state_dict(to_device(state));
    EXPECT_EQ(values_of(*model, model->state_dict()), want[2].parameters);
  }
  const auto go_on = [&](uint32_t ranks, const FsdpOptions& options) {
    std::vector<Bits> got;
    run_ranks(ranks, [&](ProcessGroup& group) {
      auto model = small_model();
      FullyShardedDataParallel fsdp(model, units_of(*model), group, options);
      AdamW optimizer(fsdp.parameters());
      fsdp.load_state(to_device(weights));
      optimizer.load_state_dict(fsdp.sharded_optimizer_state(to_device(state)));
      for (uint32_t step = 3; step < course.steps; ++step) {
        optimizer.zero_grad();
        // With twice the ranks two of them share the part that one had.
        const uint32_t part = group.rank() * 2 / ranks;
        loss_of(fsdp(input_of(course, step, 0, part))).backward();
        optimizer.step();
        Bits values = values_of(fsdp);
        if (group.rank() == 0) got.push_back(std::move(values));
      }
    });
    return got;
  };
  for (const int stage : {1, 2, 3}) {
    const std::vector<Bits> got = go_on(2, {.stage = stage});
    for (size_t i = 0; i < got.size(); ++i) expect_equal_bits(got[i], want[3 + i].parameters);
    const std::vector<Bits> more = go_on(4, {.stage = stage});
    for (size_t i = 0; i < more.size(); ++i) {
      EXPECT_LT(largest_difference(more[i], want[3 + i].parameters), 1e-5);
    }
  }
}

TEST(Fsdp, RefusesStatesThatDoNotFit) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = std::make_shared<Linear>(2, 3);
    FullyShardedDataParallel fsdp(model, {}, group);
    EXPECT_EQ(thrown_by([&] {
                fsdp.load_state({{"weight", zeros({2, 3}, BP_F32)}});
              }),
              "load_state_dict: the state does not fit the model, so nothing was loaded:\n"
              "  'weight' is (2, 3); the model has (3, 2)\n  'bias' is missing");
    EXPECT_EQ(thrown_by([&] {
                fsdp.sharded_optimizer_state({{"exp_avg.1", zeros({2, 3}, BP_F32)}});
              }),
              "FullyShardedDataParallel: the state of the optimizer has 'exp_avg.1' of the shape "
              "(2, 3); allowed: (3,), as the parameter");
    EXPECT_EQ(thrown_by([&] {
                fsdp.optimizer_pieces({{"exp_avg.1", zeros({2, 3}, BP_F32)}});
              }),
              "FullyShardedDataParallel: the state of the optimizer has 'exp_avg.1' of the shape "
              "(2, 3); allowed: " +
                  to_string(fsdp.parameters()[1].shape()) + ", as the shard of this parameter");
    EXPECT_EQ(thrown_by([&] { fsdp.state(group.device(), 2); }),
              "FullyShardedDataParallel: the root is rank 2; allowed: below the size of the group, "
              "2");
  });
}

}  // namespace
}  // namespace bp::distributed
