#include "backplane/runtime/distributed/parameter_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "backplane/runtime/distributed/checkpoint.hpp"
#include "runtime/distributed/test_parameter_server.hpp"
#include "runtime/distributed/test_processes.hpp"
#include "runtime/distributed/test_trainee.hpp"

namespace bp::distributed {
namespace {

using Names = std::vector<std::string>;

// All workers must have `want` behind finish().
void expect_bits(const std::vector<uint32_t>& batches, uint32_t servers,
                 const MakeOptimizer& make_optimizer, const Bits& want) {
  const auto workers = static_cast<uint32_t>(batches.size());
  run_ranks(workers + servers, [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 50 * group.rank());
    ParameterServer server(model, group, {.servers = servers, .make_optimizer = make_optimizer});
    EXPECT_EQ(server.is_server(), group.rank() >= workers);
    EXPECT_EQ(server.worker_count(), workers);
    train(server, batches);
    if (!server.is_server()) return expect_equal_bits(values_of(*model), want);
    const std::vector<uint64_t> steps(batches.begin(), batches.end());
    EXPECT_EQ(server.counters().steps, steps);
    EXPECT_EQ(server.counters().largest_lead, 0u);
  });
}

TEST(ParameterServer, EqualsOneDeviceInEveryBitWithOneWorker) {
  for (const auto make : {make_sgd, make_adamw}) {
    const Bits want = train_on_one({5}, make);
    EXPECT_NE(want, train_on_one({4}, make));
    expect_bits({5}, 1, make, want);
    expect_bits({5}, 3, make, want);
  }
}

TEST(ParameterServer, AppliesPushesByRankInLockstep) {
  const std::vector<uint32_t> batches{4, 4};
  const Bits want = train_on_one(batches, make_adamw);
  EXPECT_NE(want, train_on_one(batches, make_adamw, true))
      << "another order gives other bits, so the comparison can fail";
  expect_bits(batches, 1, make_adamw, want);
  expect_bits(batches, 2, make_adamw, want);
}

TEST(ParameterServer, GoesOnWithoutWorkersThatHaveFinished) {
  const std::vector<uint32_t> batches{4, 1, 2}, none_first{0, 3};
  expect_bits(batches, 1, make_sgd, train_on_one(batches, make_sgd));
  expect_bits(none_first, 2, make_sgd, train_on_one(none_first, make_sgd));
  expect_bits({0}, 1, make_sgd, train_on_one({0}, make_sgd));
}

TEST(ParameterServer, SharesParametersOutByBytes) {
  run_ranks(3, [](ProcessGroup& group) {
    // In bytes: 448, 64, 1024, 64, 192, 12.
    const ParameterServer server(small_model(), group, {.servers = 2, .make_optimizer = make_sgd});
    const std::map<uint32_t, Names> want{
        {0, {}}, {1, {"2.weight"}}, {2, {"0.weight", "0.bias", "2.bias", "4.weight", "4.bias"}}};
    EXPECT_EQ(server.served_names(), want.at(group.rank()));
  });
}

// Worker 1 waits before each of its steps until worker 0 is as far ahead as it may be.
TEST(ParameterServer, LetsAWorkerRunAheadUpToTheBound) {
  constexpr uint64_t kStaleness = 3;
  constexpr uint32_t kSteps = 9;
  std::atomic<uint64_t> fast{0}, slow{0};  // Steps of worker 0 that ended; of worker 1 that began.
  run_ranks(3, [&](ProcessGroup& group) {
    auto model = small_model();
    ParameterServer server(model, group, {.staleness = kStaleness, .make_optimizer = make_sgd});
    if (server.is_server()) {
      server.serve();
      EXPECT_EQ(server.counters().largest_lead, kStaleness);
      EXPECT_EQ(server.counters().steps, (std::vector<uint64_t>{kSteps, kSteps}));
      return;
    }
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (group.rank() == 1) {
        while (fast < std::min<uint64_t>(step + kStaleness, kSteps)) std::this_thread::yield();
        ++slow;
      }
      take_step(server, group.rank(), step);
      if (group.rank() == 0) {
        ++fast;
        EXPECT_LE(fast, slow + kStaleness);
      }
    }
    server.finish();
  });
  EXPECT_EQ(fast, kSteps);
}

TEST(ParameterServer, HasNoBoundIfNoneIsAsked) {
  std::atomic<bool> is_done{false};
  run_ranks(3, [&](ProcessGroup& group) {
    ParameterServer server(small_model(), group,
                           {.staleness = UINT64_MAX, .make_optimizer = make_sgd});
    if (group.rank() == 1) {
      while (!is_done) std::this_thread::yield();
    }
    if (group.rank() == 0) {
      for (uint32_t step = 0; step < 20; ++step) take_step(server, 0, step);
      is_done = true;
    }
    train(server, {0, 1});
    if (server.is_server()) {
      EXPECT_EQ(server.counters().largest_lead, 20u);
    }
  });
}

// The servers tell worker 0 to wait several times: first in a step, and then until the other worker
// has finished, which is longer than the timeout of the group.
TEST(ParameterServer, WaitsForASlowWorker) {
  const std::vector<uint32_t> batches{1, 5};
  const Bits want = train_on_one(batches, make_adamw);
  run_ranks(4,
            [&](ProcessGroup& group) {
              auto model = small_model();
              set_values(*model, 0);
              ParameterServer server(model, group, {.servers = 2, .make_optimizer = make_adamw});
              if (server.is_server()) return server.serve();
              for (uint32_t step = 0; step < batches[group.rank()]; ++step) {
                if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
                take_step(server, group.rank(), step);
              }
              server.finish();
              expect_equal_bits(values_of(*model), want);
            },
            {.timeout = std::chrono::seconds(2)});
}

TEST(ParameterServer, ServesAgainBehindFinish) {
  const Bits want = train_on_one({5, 5}, make_adamw);
  run_ranks(3, [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 0);
    ParameterServer server(model, group, {.make_optimizer = make_adamw});
    for (uint32_t step = 0; step < 5; ++step) {
      if (server.is_server()) {
        server.serve();
      } else {
        take_step(server, group.rank(), step);
        server.finish();
      }
      group.barrier();
    }
    expect_equal_bits(values_of(*model), want);
    if (server.is_server()) {
      EXPECT_EQ(server.counters().steps, (std::vector<uint64_t>{5, 5}));
    }
  });
}

TEST(ParameterServer, TellsTheHostOfEachStep) {
  const CosineSchedule schedule{.peak = 0.02, .warmup = 2, .total = 6};
  Bits want;
  {
    const DeviceGuard guard(test_devices()[0]);
    auto model = small_model();
    set_values(*model, 0);
    AdamW optimizer(model->parameters());
    for (uint32_t step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      loss_of((*model)(batch_of(0, step))).backward();
      optimizer.set_lr(schedule.lr(step + 1));
      optimizer.step();
    }
    want = values_of(*model);
  }
  run_ranks(2, [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 0);
    std::shared_ptr<AdamW> optimizer;
    const auto make = [&](const std::vector<Tensor>& parameters) {
      return optimizer = std::make_shared<AdamW>(parameters);
    };
    uint64_t count = 0;
    const auto before_step = [&](const PushedStep& push) {
      EXPECT_EQ(push.rank, 0u);
      EXPECT_EQ(push.step, ++count);
      optimizer->set_lr(schedule.lr(static_cast<int64_t>(push.step)));
    };
    ParameterServer server(model, group, {.make_optimizer = make, .before_step = before_step});
    train(server, {6});
    EXPECT_EQ(optimizer != nullptr, server.is_server());
    EXPECT_EQ(count, server.is_server() ? 6u : 0u);
    expect_equal_bits(values_of(*model), want);
  });
}

// Parameters of two dtypes, one that is frozen, and one that gets a gradient in some steps only.
class Mixed : public nn::Module {
 public:
  Mixed() {
    single_ = add_parameter("single", full({3}, 1, BP_F32));
    wide_ = add_parameter("wide", full({2, 2}, 2, BP_F64));
    frozen_ = add_parameter("frozen", full({3}, 3, BP_F32));
    frozen_.set_requires_grad(false);
    rare_ = add_parameter("rare", full({5}, 4, BP_F32));
    empty_ = add_parameter("empty", full({0}, 0, BP_F32));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = bp::sum(single_ * frozen_ * x) + bp::sum(wide_ * wide_).to(BP_F32);
    return uses_rare ? y + bp::sum(rare_ * rare_) : y;
  }
  bool uses_rare = false;

 private:
  Tensor single_, wide_, frozen_, rare_, empty_;
};

// One optimizer of the backend's kernel for each dtype.
class ByDtype : public Optimizer {
 public:
  explicit ByDtype(const std::vector<Tensor>& parameters) : Optimizer(parameters) {
    std::map<bp_dtype, std::vector<Tensor>> lists;
    for (const Tensor& tensor : parameters) lists[tensor.dtype()].push_back(tensor);
    for (const auto& [dtype, list] : lists) optimizers_.push_back(make_sgd(list));
  }
  void step() override {
    for (const auto& optimizer : optimizers_) optimizer->step();
  }

 private:
  std::vector<std::shared_ptr<Optimizer>> optimizers_;
};

void take_mixed_step(Mixed& model, uint32_t step) {
  for (const Tensor& tensor : model.parameters()) tensor.set_grad({});
  model.uses_rare = step % 2 == 1;
  model(full({3}, 0.5 + step, BP_F32)).backward();
}

std::string text_of(const nn::Module& module) {
  std::string text;
  for (const auto& [name, tensor] : module.named_parameters()) {
    text += name + " " + to_string(tensor.detach(), {.precision = 17}) + "\n";
  }
  return text;
}

TEST(ParameterServer, TakesDtypesAndParametersAsTheyAre) {
  std::string want;
  {
    const DeviceGuard guard(test_devices()[0]);
    Mixed model;
    std::vector<Tensor> trained = model.parameters();
    std::erase_if(trained, [](const Tensor& t) { return !t.requires_grad(); });
    ByDtype optimizer(trained);
    for (uint32_t step = 0; step < 4; ++step) {
      take_mixed_step(model, step);
      optimizer.step();
    }
    want = text_of(model);
  }
  for (const uint32_t servers : {1u, 2u, 3u}) {
    run_ranks(1 + servers, [&](ProcessGroup& group) {
      auto model = std::make_shared<Mixed>();
      const auto make = [](const std::vector<Tensor>& parameters) {
        return std::make_shared<ByDtype>(parameters);
      };
      ParameterServer server(model, group, {.servers = servers, .make_optimizer = make});
      if (server.is_server()) return server.serve();
      for (uint32_t step = 0; step < 4; ++step) {
        take_mixed_step(*model, step);
        server.push();
        for (const Tensor& tensor : model->parameters()) tensor.set_grad({});
        server.pull();
      }
      server.finish();
      EXPECT_EQ(text_of(*model), want);
    });
  }
}

// A run with a parameter server whose state goes to and comes from a checkpoint by shard.
void run_part(const std::string& path, uint32_t workers, uint32_t servers, uint32_t first,
              uint32_t last) {
  run_ranks(workers + servers, [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 0);
    std::shared_ptr<AdamW> optimizer;
    const auto make = [&](const std::vector<Tensor>& parameters) {
      return optimizer = std::make_shared<AdamW>(parameters, AdamWOptions{.lr = 0.01});
    };
    ParameterServer server(model, group, {.servers = servers, .make_optimizer = make});
    CheckpointFolder folder(path, group);
    const auto pieces_with = [&](const TensorMap& state) {
      std::vector<Piece> pieces;
      append_pieces(pieces, "model.", server.pieces());
      append_pieces(pieces, "optimizer.", server.optimizer_pieces(state));
      return pieces;
    };
    TensorMap state = optimizer ? optimizer->state_dict() : TensorMap();
    if (first > 0) {
      folder.load(folder.open_latest(), pieces_with(state));
      if (optimizer) optimizer->load_state_dict(state);
    }
    if (server.is_server()) {
      server.serve();
      state = optimizer->state_dict();
    } else {
      for (uint32_t step = first; step < last; ++step) take_step(server, group.rank(), step);
      server.finish();
    }
    folder.save(last, pieces_with(state));
  });
}

TEST(ParameterServer, GoesOnFromACheckpointWithOtherServers) {
  const ScratchFolder scratch;
  const std::string whole = scratch.file("whole"), parts = scratch.file("parts");
  run_part(whole, 2, 1, 0, 5);
  run_part(parts, 2, 2, 0, 2);
  run_part(parts, 2, 1, 2, 4);
  run_part(parts, 2, 2, 4, 5);
  const Content want = content_of(whole + "/step_5"), got = content_of(parts + "/step_5");
  EXPECT_EQ(want.size(), 6u * 3 + 1);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace bp::distributed
