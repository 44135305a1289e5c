// Training with a parameter server, and what it is compared with, for its tests.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "backplane/runtime/distributed/parameter_server.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {

using MakeOptimizer = std::function<std::shared_ptr<Optimizer>(const std::vector<Tensor>&)>;

inline std::shared_ptr<Optimizer> make_sgd(const std::vector<Tensor>& parameters) {
  return std::make_shared<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9});
}
inline std::shared_ptr<Optimizer> make_adamw(const std::vector<Tensor>& parameters) {
  return std::make_shared<AdamW>(parameters, AdamWOptions{.lr = 0.01});
}

inline Tensor batch_of(uint32_t rank, uint32_t step) { return input(5, 7, 100 * step + rank); }

inline Bits values_of(const nn::Module& module) {
  Bits bits;
  for (const Tensor& tensor : module.parameters()) {
    bits.push_back(tensor.detach().to_vector<float>());
  }
  return bits;
}

// Trains one model on one device as a server in lockstep does: in each step all workers that have a
// batch compute with the same parameters, and their gradients are a step each, by rank.
// `is_reversed` takes the ranks in the other order.
inline Bits train_on_one(const std::vector<uint32_t>& batches, const MakeOptimizer& make_optimizer,
                         bool is_reversed = false) {
  const DeviceGuard guard(test_devices()[0]);
  auto model = small_model();
  set_values(*model, 0);
  const auto optimizer = make_optimizer(model->parameters());
  for (uint32_t step = 0; step < *std::ranges::max_element(batches); ++step) {
    std::vector<std::vector<Tensor>> pushes;
    for (uint32_t rank = 0; rank < batches.size(); ++rank) {
      if (step >= batches[rank]) continue;
      optimizer->zero_grad();
      loss_of((*model)(batch_of(rank, step))).backward();
      pushes.emplace_back();
      for (const Tensor& tensor : model->parameters()) pushes.back().push_back(tensor.grad());
    }
    if (is_reversed) std::ranges::reverse(pushes);
    for (const auto& push : pushes) {
      for (size_t i = 0; i < push.size(); ++i) model->parameters()[i].set_grad(push[i]);
      optimizer->step();
    }
  }
  return values_of(*model);
}

// Takes a step on a worker.
inline void take_step(ParameterServer& server, uint32_t rank, uint32_t step) {
  for (const Tensor& tensor : server.module().parameters()) tensor.set_grad({});
  loss_of(server.module()(batch_of(rank, step))).backward();
  server.push();
  server.pull();
}

// Trains on the ranks of a group. Worker i has batches[i] batches.
inline void train(ParameterServer& server, const std::vector<uint32_t>& batches) {
  if (server.is_server()) return server.serve();
  const uint32_t rank = server.group().rank();
  for (uint32_t step = 0; step < batches[rank]; ++step) take_step(server, rank, step);
  server.finish();
}

}  // namespace bp::distributed
