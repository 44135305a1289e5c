#include "backplane/runtime/distributed/fsdp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>

#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/memory.hpp"
#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

using nn::Linear;
using Modules = std::vector<std::shared_ptr<nn::Module>>;

// Returns the layers of a Sequential that have parameters, except for the last one.
Modules units_of(const nn::Module& model) {
  Modules units;
  for (const auto& [name, layer] : model.named_modules()) {
    if (name.find('.') == std::string::npos && layer->parameter_count() > 0) units.push_back(layer);
  }
  units.pop_back();
  return units;
}

std::shared_ptr<nn::Sequential> transformer() {
  Modules layers{std::make_shared<Linear>(7, 16)};
  for (int i = 0; i < 3; ++i) layers.push_back(std::make_shared<nn::TransformerBlock>(16, 2));
  layers.push_back(std::make_shared<Linear>(16, 3));
  return std::make_shared<nn::Sequential>(layers);
}

// What a step leaves: the whole gradients, then the whole parameters.
struct Step {
  Bits gradients, parameters;
};

void expect_equal(const std::vector<Step>& got, const std::vector<Step>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    expect_equal_bits(got[i].gradients, want[i].gradients);
    expect_equal_bits(got[i].parameters, want[i].parameters);
  }
}

double largest_difference(const Bits& a, const Bits& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a[i].size(); ++k) {
      largest = std::max(largest, std::abs(double{a[i][k]} - b[i][k]));
    }
  }
  return largest;
}

// Returns the whole gradients on rank 0, and nothing on the others.
Bits gradients_of(const FullyShardedDataParallel& fsdp) {
  TensorMap own;
  const std::vector<Tensor> shards = fsdp.parameters();
  for (size_t i = 0; i < shards.size(); ++i) own["grad." + std::to_string(i)] = shards[i].grad();
  const TensorMap whole = fsdp.whole_optimizer_state(own, fsdp.group().device());
  Bits bits;
  for (size_t i = 0; i < whole.size(); ++i) {
    bits.push_back(whole.at("grad." + std::to_string(i)).to_vector<float>());
  }
  return bits;
}

Bits values_of(const nn::Module& module, const TensorMap& state) {
  Bits bits;
  if (state.empty()) return bits;
  for (const auto& [name, tensor] : module.named_parameters()) {
    bits.push_back(state.at(name).to_vector<float>());
  }
  return bits;
}

Bits values_of(const FullyShardedDataParallel& fsdp) {
  return values_of(fsdp.module(), fsdp.state(fsdp.group().device()));
}

using MakeModel = std::function<std::shared_ptr<nn::Sequential>()>;
using MakeInput = std::function<Tensor(uint32_t seed)>;

struct Course {
  MakeModel model = small_model;
  MakeInput input = [](uint32_t seed) { return bp::distributed::input(5, 7, seed); };
  uint32_t steps = 4;
  uint32_t micro_steps = 1;
};

Tensor input_of(const Course& course, uint32_t step, uint32_t micro, uint32_t rank) {
  return course.input(1000u * step + 10u * micro + rank);
}

std::vector<Step> train_ddp(ProcessGroup& group, const Course& course) {
  auto model = course.model();
  set_values(*model, 100 * group.rank());
  DistributedDataParallel ddp(model, group);
  AdamW optimizer(model->parameters());
  std::vector<Step> steps;
  for (uint32_t step = 0; step < course.steps; ++step) {
    optimizer.zero_grad();
    for (uint32_t micro = 0; micro < course.micro_steps; ++micro) {
      const Tensor x = input_of(course, step, micro, group.rank());
      if (micro + 1 == course.micro_steps) {
        loss_of(ddp(x)).backward();
      } else {
        const auto no_sync = ddp.no_sync();
        loss_of(ddp(x)).backward();
      }
    }
    steps.push_back({bp::distributed::gradients_of(*model), {}});
    optimizer.step();
    steps.back().parameters = values_of(*model, model->state_dict());
  }
  return steps;
}

std::vector<Step> train_fsdp(ProcessGroup& group, const Course& course,
                             const FsdpOptions& options) {
  auto model = course.model();
  set_values(*model, 100 * group.rank());
  FullyShardedDataParallel fsdp(model, units_of(*model), group, options);
  AdamW optimizer(fsdp.parameters());
  std::vector<Step> steps;
  for (uint32_t step = 0; step < course.steps; ++step) {
    optimizer.zero_grad();
    for (uint32_t micro = 0; micro < course.micro_steps; ++micro) {
      const Tensor x = input_of(course, step, micro, group.rank());
      if (micro + 1 == course.micro_steps) {
        loss_of(fsdp(x)).backward();
      } else {
        const auto no_sync = fsdp.no_sync();
        loss_of(fsdp(x)).backward();
      }
    }
    steps.push_back({gradients_of(fsdp), {}});
    optimizer.step();
    steps.back().parameters = values_of(fsdp);
  }
  return steps;
}

void expect_bits_of_ddp(uint32_t ranks, const Course& course, const FsdpOptions& options) {
  SCOPED_TRACE("stage " + std::to_string(options.stage) + ", ranks " + std::to_string(ranks));
  std::vector<Step> want, got;
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto steps = train_ddp(group, course);
    if (group.rank() == 0) want = std::move(steps);
  });
  run_ranks(ranks, [&](ProcessGroup& group) {
    auto steps = train_fsdp(group, course, options);
    if (group.rank() == 0) got = std::move(steps);
  });
  expect_equal(got, want);
}

TEST(Fsdp, EqualsDdpInEveryBitAtEveryStage) {
  for (const int stage : {1, 2, 3}) {
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) expect_bits_of_ddp(ranks, {}, {.stage = stage});
  }
}

TEST(Fsdp, EqualsItForATransformer) {
  const Course course{.model = transformer,
                      .input =
                          [](uint32_t seed) {
                            return input(6, 7, seed).view({2, 3, 7});
                          },
                      .steps = 3};
  for (const int stage : {1, 2, 3}) {
    for (const uint32_t ranks : {2u, 4u}) expect_bits_of_ddp(ranks, course, {.stage = stage});
  }
}

TEST(Fsdp, EqualsItWithEachPolicy) {
  expect_bits_of_ddp(2, {}, {.reshards_after_forward = false});
  expect_bits_of_ddp(2, {}, {.forward_prefetch = 0, .backward_prefetch = 0});
  expect_bits_of_ddp(2, {}, {.forward_prefetch = 3, .backward_prefetch = 3});
}

TEST(Fsdp, EqualsItWithGradientsFromNoSync) {
  for (const int stage : {1, 2, 3}) {
    expect_bits_of_ddp(2, {.steps = 3, .micro_steps = 3}, {.stage = stage});
  }
}

TEST(Fsdp, AddsGradientsOfSeveralBackwardRuns) {
  run_ranks(2, [](ProcessGroup& group) {
    for (const int stage : {1, 2, 3}) {
      auto model = std::make_shared<Linear>(2, 1, false);
      FullyShardedDataParallel fsdp(model, {}, group, {.stage = stage});
      const auto backward = [&] {
        bp::sum(fsdp(full({1, 2}, group.rank() == 0 ? 1 : 5, BP_F32))).backward();
      };
      backward();
      const Bits once = gradients_of(fsdp);
      backward();
      const Bits twice = gradients_of(fsdp);
      if (group.rank() == 0) {
        EXPECT_EQ(once, (Bits{{3, 3}}));
        EXPECT_EQ(twice, (Bits{{6, 6}}));
      }
      {
        const auto no_sync = fsdp.no_sync();
        backward();
      }
      fsdp.zero_grad();
      backward();
      const Bits after = gradients_of(fsdp);
      if (group.rank() == 0) {
        EXPECT_EQ(after, (Bits{{3, 3}}));
      }
    }
  });
}

TEST(Fsdp, SumsOverReplicasAsWell) {
  // Ranks 0 and 1 shard the model, and so do 2 and 3.
  const Course course;
  std::vector<Step> want, got;
  run_ranks(4, [&](ProcessGroup& group) {
    auto steps = train_ddp(group, course);
    if (group.rank() == 0) want = std::move(steps);
  });
  for (const int stage : {1, 2, 3}) {
    run_ranks(4, [&](ProcessGroup& group) {
      const auto shards = group.split(group.rank() / 2, group.rank(), "shards");
      ProcessGroup sharding = *shards;
      const auto replicas = group.split(group.rank() % 2, group.rank(), "replicas");
      auto model = small_model();
      set_values(*model, 100 * group.rank());
      FullyShardedDataParallel fsdp(model, units_of(*model), sharding,
                                    {.stage = stage, .replicas = replicas});
      AdamW optimizer(fsdp.parameters());
      std::vector<Step> steps;
      for (uint32_t step = 0; step < course.steps; ++step) {
        optimizer.zero_grad();
        loss_of(fsdp(input_of(course, step, 0, group.rank()))).backward();
        steps.push_back({gradients_of(fsdp), {}});
        optimizer.step();
        steps.back().parameters = values_of(fsdp);
      }
      if (group.rank() == 0) got = std::move(steps);
    });
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LT(largest_difference(got[i].gradients, want[i].gradients), 1e-6);
      EXPECT_LT(largest_difference(got[i].parameters, want[i].parameters), 1e-5);
    }
  }
}

// ---- Memory ------------------------------------------------------------------------------------

constexpr int64_t kWidth = 256;
constexpr int64_t kLayers = 8;
constexpr double kUnitBytes = 4.0 * kWidth * kWidth;

std::shared_ptr<nn::Sequential> wide_model() {
  Modules layers;
  for (int64_t i = 0; i < kLayers; ++i) {
    layers.push_back(std::make_shared<Linear>(kWidth, kWidth, false));
  }
  return std::make_shared<nn::Sequential>(layers);
}

// Memory that another stream has used counts until the cache learns that this stream is done.
double allocated(Device device) {
  device.synchronize();
  empty_cache(device);
  return static_cast<double>(memory_statistics(device).allocated_bytes);
}

// Returns the bytes that a model, its gradients and its optimizer take on each rank after a step.
double bytes_after_step(uint32_t ranks, const FsdpOptions& options) {
  double most = 0;
  std::mutex mutex;
  run_ranks(ranks, [&](ProcessGroup& group) {
    const double before = allocated(group.device());
    auto model = wide_model();
    FullyShardedDataParallel fsdp(model, units_of(*model), group, options);
    AdamW optimizer(fsdp.parameters());
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      loss_of(fsdp(input(1, kWidth, 1))).backward();
      optimizer.step();
    }
    const std::scoped_lock lock(mutex);
    most = std::max(most, allocated(group.device()) - before);
  });
  return most;
}

TEST(Fsdp, TakesMemoryThatFallsWithTheRanks) {
  const double model = kUnitBytes * kLayers;
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    // Parameters, gradients, and two moments.
    EXPECT_NEAR(bytes_after_step(ranks, {.stage = 3}), 4 * model / ranks, 0.05 * 4 * model / ranks);
    const double second = model + 3 * model / ranks;
    EXPECT_NEAR(bytes_after_step(ranks, {.stage = 2}), second, 0.05 * second);
    const double first =
        2 * model + 3 * model / ranks;  // The gradients of the rank's own part too.
    EXPECT_NEAR(bytes_after_step(ranks, {.stage = 1}), first, 0.05 * first);
  }
}

TEST(Fsdp, KeepsShardsOnAnotherDevice) {
  const Course course;
  std::vector<Step> want, got;
  run_ranks(2, [&](ProcessGroup& group) {
    auto steps = train_ddp(group, course);
    if (group.rank() == 0) want = std::move(steps);
  });
  for (const int stage : {1, 2, 3}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto steps = train_fsdp(group, course, {.stage = stage, .shard_device = other_test_device()});
      if (group.rank() == 0) got = std::move(steps);
    });
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      expect_equal_bits(got[i].gradients, want[i].gradients);
      EXPECT_LT(largest_difference(got[i].parameters, want[i].parameters), 1e-6);
    }
  }
  EXPECT_LT(bytes_after_step(2, {.shard_device = other_test_device()}), kUnitBytes / 10);
}

// Returns how much memory a step has at most while a unit computes, beside what it has between
// steps, in units.
double units_in_step(const FsdpOptions& options) {
  double most = 0;
  std::mutex mutex;
  run_ranks(2, [&](ProcessGroup& group) {
    auto model = wide_model();
    const Modules units = units_of(*model);
    FullyShardedDataParallel fsdp(model, units, group, options);
    double between = 0, own = 0;
    std::vector<nn::ForwardHook> hooks;
    const auto look = [&](const Tensor& x) {
      own = std::max(own, allocated(group.device()));
      return x;
    };
    for (const auto& unit : units) {
      const auto gated = [&, look](const Tensor& y) {
        look(y);
        if (!is_grad_enabled()) return y;
        return with_gradient("look", {&y, 1}, y.detach(), [look](const Tensor& gradient) {
          return std::vector<Tensor>{look(gradient)};
        });
      };
      hooks.emplace_back(unit, "look", look, gated);
    }
    for (int step = 0; step < 3; ++step) {
      fsdp.zero_grad();
      between = allocated(group.device());
      own = 0;
      loss_of(fsdp(input(1, kWidth, 1))).backward();
    }
    const std::scoped_lock lock(mutex);
    most = std::max(most, (own - between) / kUnitBytes);
  });
  return most;
}

TEST(Fsdp, HoldsAFewUnitsAtATime) {
  // The root unit, the one that computes, one ahead, the gradients of the root, of the present
  // unit, and of two that are under way; then half of each reduced gradient.
  EXPECT_LT(units_in_step({}), 7 + kLayers / 2.0);
  EXPECT_GT(units_in_step({.reshards_after_forward = false}), kLayers);
}

TEST(Fsdp, GathersTheNextUnitAhead) {
  // The memory of the first unit's forward() in the second step: the root, the unit, and those
  // ahead.
  for (const uint32_t ahead : {0u, 1u, 2u}) {
    run_ranks(2, [&](ProcessGroup& group) {
      auto model = wide_model();
      const Modules units = units_of(*model);
      FullyShardedDataParallel fsdp(model, units, group,
                                    {.forward_prefetch = ahead, .backward_prefetch = ahead});
      const NoGradGuard no_grad;
      const Tensor x = input(1, kWidth, 1);
      const double before = allocated(group.device());
      double during = 0;
      const nn::ForwardHook hook(units[0], "look",
                                 [&](const Tensor& t) {
                                   during = allocated(group.device());
                                   return t;
                                 },
                                 {});
      fsdp(x);
      EXPECT_NEAR((during - before) / kUnitBytes, 2, 0.05) << "the order is not known yet";
      fsdp(x);
      EXPECT_NEAR((during - before) / kUnitBytes, 2 + ahead, 0.05);
    });
  }
}

// ---- Mixed precision ---------------------------------------------------------------------------

TEST(Fsdp, ComputesInSixteenBits) {
  struct Row {
    FsdpOptions options;
    double bound;  // Of the largest gradient.
  };
  const Row rows[] = {{{.compute_dtype = BP_BF16}, 1.0 / 32},
                      {{.compute_dtype = BP_F16}, 1.0 / 256},
                      {{.gather_dtype = BP_BF16}, 1.0 / 64},
                      {{.reduce_dtype = BP_BF16}, 1.0 / 64},
                      {{.reduce_dtype = BP_F16}, 1.0 / 512},
                      {{.compute_dtype = BP_BF16, .reduce_dtype = BP_BF16}, 1.0 / 32}};
  for (const Row& row : rows) {
    for (const int stage : {1, 2, 3}) {
      FsdpOptions options = row.options;
      options.stage = stage;
      run_ranks(2, [&](ProcessGroup& group) {
        auto exact = small_model(), rounded = small_model();
        set_values(*exact, 1);
        set_values(*rounded, 1);
        const Modules units = units_of(*rounded);
        DistributedDataParallel first(exact, group);
        FullyShardedDataParallel second(rounded, units, group, options);
        bp_dtype inside = 0;
        const nn::ForwardHook look(units[1], "look",
                                   [&](const Tensor& x) {
                                     inside = units[1]->parameters()[0].dtype();
                                     EXPECT_EQ(x.dtype(), inside);
                                     return x;
                                   },
                                   {});
        const Tensor x = input(5, 7, group.rank());
        loss_of(first(x)).backward();
        const Tensor y = second(x);
        EXPECT_EQ(y.dtype(), BP_F32);
        EXPECT_EQ(inside, options.compute_dtype == 0 ? bp_dtype{BP_F32} : options.compute_dtype);
        loss_of(y).backward();
        const Bits want = bp::distributed::gradients_of(*exact), got = gradients_of(second);
        if (group.rank() != 0) return;
        double largest = 0;
        for (const auto& values : want) {
          for (const float value : values) largest = std::max<double>(largest, std::abs(value));
        }
        const double off = largest_difference(got, want);
        EXPECT_LT(off, row.bound * largest);
        EXPECT_GT(off, 0);
      });
    }
  }
}

// ---- States ------------------------------------------------------------------------------------

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
    EXPECT_EQ(thrown_by([&] { fsdp.state(group.device(), 2); }),
              "FullyShardedDataParallel: the root is rank 2; allowed: below the size of the group, "
              "2");
  });
}

TEST(Fsdp, ClipsByTheNormOfAllRanks) {
  for (const bool is_offloaded : {false, true}) {
    run_ranks(4, [&](ProcessGroup& group) {
      auto whole = small_model(), sharded = small_model();
      set_values(*whole, 1);
      set_values(*sharded, 1);
      DistributedDataParallel ddp(whole, group);
      FsdpOptions options;
      if (is_offloaded) options.shard_device = other_test_device();
      FullyShardedDataParallel fsdp(sharded, units_of(*sharded), group, options);
      const Tensor x = input(5, 7, group.rank());
      loss_of(ddp(x)).backward();
      loss_of(fsdp(x)).backward();
      const double want = clip_grad_norm_on_device(whole->parameters(), 1e-3).item<double>();
      EXPECT_NEAR(fsdp.clip_grad_norm(1e-3).item<double>(), want, 1e-6 * want);
      EXPECT_GT(want, 1e-3);
      const Bits got = gradients_of(fsdp);
      if (group.rank() == 0) {
        EXPECT_LT(largest_difference(got, bp::distributed::gradients_of(*whole)), 1e-9);
      }
    });
  }
}

// ---- Units -------------------------------------------------------------------------------------

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

// Two branches; the input says which of them the result depends on.
class Branches : public nn::Module {
 public:
  Branches() {
    add_module("left", left = std::make_shared<Linear>(2, 2, false));
    add_module("right", right = std::make_shared<Linear>(2, 2, false));
  }
  Tensor forward(const Tensor& x) override { return (*(takes_left ? left : right))(x); }
  bool takes_left = true;
  std::shared_ptr<Linear> left, right;
};

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

// ---- Errors ------------------------------------------------------------------------------------

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
