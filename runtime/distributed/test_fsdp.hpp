// What the tests of FullyShardedDataParallel share: models, and courses of training that end with
// the values of each step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/distributed/fsdp.hpp"
#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {

using nn::Linear;
using Modules = std::vector<std::shared_ptr<nn::Module>>;

// Returns the layers of a Sequential that have parameters, except for the last one.
inline Modules units_of(const nn::Module& model) {
  Modules units;
  for (const auto& [name, layer] : model.named_modules()) {
    if (name.find('.') == std::string::npos && layer->parameter_count() > 0) units.push_back(layer);
  }
  units.pop_back();
  return units;
}

inline std::shared_ptr<nn::Sequential> transformer() {
  Modules layers{std::make_shared<Linear>(7, 16)};
  for (int i = 0; i < 3; ++i) layers.push_back(std::make_shared<nn::TransformerBlock>(16, 2));
  layers.push_back(std::make_shared<Linear>(16, 3));
  return std::make_shared<nn::Sequential>(layers);
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

// What a step leaves: the whole gradients, then the whole parameters.
struct Step {
  Bits gradients, parameters;
};

inline void expect_equal(const std::vector<Step>& got, const std::vector<Step>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    expect_equal_bits(got[i].gradients, want[i].gradients);
    expect_equal_bits(got[i].parameters, want[i].parameters);
  }
}

inline double largest_difference(const Bits& a, const Bits& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a[i].size(); ++k) {
      largest = std::max(largest, std::abs(double{a[i][k]} - b[i][k]));
    }
  }
  return largest;
}

// Returns the whole gradients on rank 0, and nothing on the others.
inline Bits gradients_of(const FullyShardedDataParallel& fsdp) {
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

inline Bits values_of(const nn::Module& module, const TensorMap& state) {
  Bits bits;
  if (state.empty()) return bits;
  for (const auto& [name, tensor] : module.named_parameters()) {
    bits.push_back(state.at(name).to_vector<float>());
  }
  return bits;
}

inline Bits values_of(const FullyShardedDataParallel& fsdp) {
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

inline Tensor input_of(const Course& course, uint32_t step, uint32_t micro, uint32_t rank) {
  return course.input(1000u * step + 10u * micro + rank);
}

inline std::vector<Step> train_ddp(ProcessGroup& group, const Course& course) {
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

inline std::vector<Step> train_fsdp(ProcessGroup& group, const Course& course,
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

}  // namespace bp::distributed
