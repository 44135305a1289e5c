#include <gtest/gtest.h>

#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

Tensor batch(uint32_t rank, uint32_t step) { return input(5, 7, 100 * step + rank); }

// Trains one model on one device: each step adds up the gradients of the ranks that have a batch.
Bits train_on_one(const std::vector<uint32_t>& batches, bool divides_by_active) {
  const DeviceGuard guard(test_devices()[0]);
  auto model = small_model();
  set_values(*model, 0);
  Sgd optimizer(model->parameters(), {.lr = 0.5});
  for (uint32_t step = 0;; ++step) {
    std::vector<uint32_t> active;
    for (uint32_t rank = 0; rank < batches.size(); ++rank) {
      if (step < batches[rank]) active.push_back(rank);
    }
    if (active.empty()) break;
    optimizer.zero_grad();
    for (const uint32_t rank : active) loss_of((*model)(batch(rank, step))).backward();
    const NoGradGuard no_grad;
    const size_t parts = divides_by_active ? active.size() : batches.size();
    for (const Tensor& tensor : model->parameters()) {
      tensor.set_grad(tensor.grad() / static_cast<double>(parts));
    }
    optimizer.step();
  }
  Bits weights;
  for (const Tensor& tensor : model->parameters()) {
    weights.push_back(tensor.detach().to_vector<float>());
  }
  return weights;
}

void expect_near(const nn::Module& model, const Bits& want) {
  const std::vector<Tensor> parameters = model.parameters();
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<float> got = parameters[i].detach().to_vector<float>();
    for (size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[i][k], 1e-5);
  }
}

void expect_uneven(const std::vector<uint32_t>& batches, bool divides_by_active,
                   const DdpOptions& options = {.bucket_bytes = 600}) {
  const Bits want = train_on_one(batches, divides_by_active);
  run_ranks(static_cast<uint32_t>(batches.size()), [&](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 0);
    DistributedDataParallel ddp(model, group, options);
    Sgd optimizer(model->parameters(), {.lr = 0.5});
    auto join = ddp.join(divides_by_active);
    for (uint32_t step = 0; step < batches[group.rank()]; ++step) {
      optimizer.zero_grad();
      loss_of(ddp(batch(group.rank(), step))).backward();
      optimizer.step();
    }
    join.finish();
    expect_near(*model, want);
  });
}

TEST(Join, ServesRanksWithFewerBatches) {
  EXPECT_NE(train_on_one({3, 5}, true), train_on_one({3, 5}, false));
  expect_uneven({3, 5}, false);
  expect_uneven({3, 5}, true);
  expect_uneven({4, 1, 6, 3}, true);
}

// Rank 0 says in which order the buckets are rebuilt, also if it never had a gradient.
TEST(Join, ServesRanksWithoutABatch) {
  expect_uneven({0, 3}, false);
  expect_uneven({2, 0, 0, 4}, true);
  expect_uneven({0, 0}, false);
}

TEST(Join, GoesTogetherWithUnusedParameters) {
  expect_uneven({1, 4}, true, {.bucket_bytes = 600, .finds_unused = true});
}

TEST(Join, EndsAndLeavesTheOrdinaryExchange) {
  run_ranks(2, [](ProcessGroup& group) {
    auto model = small_model();
    set_values(*model, 0);
    DistributedDataParallel ddp(model, group);
    {
      auto join = ddp.join();
      EXPECT_NE(thrown_by([&] { static_cast<void>(ddp.join()); }).find("another Join lives"),
                std::string::npos);
      if (group.rank() == 1) loss_of(ddp(batch(1, 0))).backward();
      join.finish();
    }
    for (const Tensor& tensor : model->parameters()) tensor.set_grad({});
    loss_of(ddp(batch(0, 0))).backward();  // The same batch on both ranks.
    const Bits got = gradients_of(*model);
    auto alone = small_model();
    alone->load_state_dict(model->state_dict());
    loss_of((*alone)(batch(0, 0))).backward();
    const Bits want = gradients_of(*alone);
    for (size_t i = 0; i < want.size(); ++i) {
      for (size_t k = 0; k < want[i].size(); ++k) EXPECT_NEAR(got[i][k], want[i][k], 1e-6);
    }
  });
}

}  // namespace
}  // namespace bp::distributed
