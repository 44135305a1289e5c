#include "backplane/runtime/distributed/expert_parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"
#include "runtime/distributed/token_exchange.hpp"

namespace bp::distributed {
namespace {

constexpr int64_t kWidth = 6, kExperts = 4, kBatch = 4, kLength = 10;

double difference(const Tensor& a, const Tensor& b) {
  const NoGradGuard no_grad;
  return amax(abs(a.detach() - b.detach())).item<double>();
}

std::shared_ptr<nn::Module> make_expert(int64_t) {
  return std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(kWidth, 9, true, Activation::kGelu),
      std::make_shared<nn::Linear>(9, kWidth)});
}

// Returns the most probable expert of a token that it has not chosen yet.
size_t next_choice(const float* p, const float* choices) {
  size_t best = kExperts;
  for (size_t e = 0; e < kExperts; ++e) {
    if (choices[e] > 0) continue;
    if (best == kExperts || p[e] > p[best]) best = e;
  }
  return best;
}

// The same mixture on one device, in another way: every expert computes every token, and weights
// are 0 where a token did not choose it, or found no room. The host chooses.
struct Dense {
  std::shared_ptr<nn::Linear> router = std::make_shared<nn::Linear>(kWidth, kExperts, false);
  std::vector<std::shared_ptr<nn::Module>> experts;
  std::vector<int64_t> chosen = std::vector<int64_t>(kExperts), dropped = chosen;
  Tensor y, balance;

  Dense() {
    for (int64_t i = 0; i < kExperts; ++i) experts.push_back(make_expert(i));
  }

  // Returns the choices of all tokens (rows, length, experts): 1 where a token chose an expert,
  // else 0; and in `kept` those that found room.
  std::vector<float> choose(const std::vector<float>& p, int64_t k, int64_t capacity,
                            std::vector<float>& kept) {
    std::vector<float> choices(p.size());
    kept = choices;
    for (int64_t row = 0; row < kBatch; ++row) {
      std::vector<int64_t> taken(kExperts);
      for (int64_t choice = 0; choice < k; ++choice) {
        for (int64_t token = 0; token < kLength; ++token) {
          const auto begin = static_cast<size_t>((row * kLength + token) * kExperts);
          const size_t best = next_choice(&p[begin], &choices[begin]);
          choices[begin + best] = 1;
          ++chosen[best];
          if (taken[best]++ < capacity) {
            kept[begin + best] = 1;
          } else {
            ++dropped[best];
          }
        }
      }
    }
    return choices;
  }

  void run(const Tensor& x, int64_t k, int64_t capacity) {
    const Tensor p = softmax((*router)(x), 2);
    std::vector<float> kept;
    const std::vector<float> choices = choose(p.detach().to_vector<float>(), k, capacity, kept);
    const Tensor chosen_mask = from_host(choices, p.shape()),
                 kept_mask = from_host(kept, p.shape());
    const Tensor total = sum(p * chosen_mask, {2}, true);
    const Tensor weights = k == 1 ? p * kept_mask : p * kept_mask / total;
    for (int64_t e = 0; e < kExperts; ++e) {
      const Tensor part =
          (*experts[static_cast<size_t>(e)])(x.reshape({kBatch * kLength, kWidth})).view(x.shape());
      const Tensor weighted = part * weights.narrow(2, e, 1);
      y = e == 0 ? weighted : y + weighted;
    }
    const Tensor share = mean(chosen_mask, {1}) / static_cast<double>(k);
    balance = mean(sum(share * mean(p, {1}), {1})) * static_cast<double>(kExperts);
  }
};

struct Case {
  int64_t top_k;
  double capacity_factor;
  int64_t capacity;  // ceil(capacity_factor * top_k * 10 / 4), and at most 10.
  bool drops;
  MixtureExchange exchange = MixtureExchange::kPadded;
};

// Compares the result, the statistics and all gradients with those of one device.
void expect_same(const Case& c, const ProcessGroup& group) {
  const int64_t own_rows = kBatch / int64_t{group.size()}, begin = own_rows * int64_t{group.rank()};
  current_device().generator().set_seed(5);
  Dense dense;
  current_device().generator().set_seed(5);
  MixtureOfExperts mixture(kWidth, make_expert, group,
                           {.expert_count = kExperts,
                            .top_k = c.top_k,
                            .capacity_factor = c.capacity_factor,
                            .exchange = c.exchange});
  const Tensor x = (input(kBatch * kLength, kWidth, 3) * 4).view({kBatch, kLength, kWidth});
  const Tensor own = x.narrow(0, begin, own_rows).clone();
  x.set_requires_grad();
  own.set_requires_grad();
  dense.run(x, c.top_k, c.capacity);
  const Tensor y = mixture(own);
  EXPECT_LT(difference(y, dense.y.detach().narrow(0, begin, own_rows)), 1e-6);

  const MixtureStatistics& statistics = mixture.statistics();
  const Tensor counts[] = {statistics.chosen.clone(), statistics.dropped.clone()};
  for (const Tensor& tensor : counts) group.all_reduce(tensor).join();
  EXPECT_EQ(counts[0].to_vector<int64_t>(), dense.chosen);
  EXPECT_EQ(counts[1].to_vector<int64_t>(), dense.dropped);
  EXPECT_EQ(std::ranges::any_of(dense.dropped, [](int64_t count) { return count > 0; }), c.drops);
  const Tensor balance = statistics.balance_loss.detach().clone();
  group.all_reduce(balance, bp::distributed::Reduction::kAverage).join();
  EXPECT_NEAR(balance.item<double>(), dense.balance.item<double>(), 1e-6);

  (loss_of(dense.y) + dense.balance * 0.5).backward();
  (loss_of(y) + statistics.balance_loss * 0.5).backward();
  const double size = group.size();
  EXPECT_LT(difference(own.grad() / size, x.grad().narrow(0, begin, own_rows)), 1e-6);
  average_mixture_gradients(mixture, group);
  std::map<std::string, Tensor> want{{"router.weight", dense.router->parameters()[0]}};
  std::vector<Tensor> all{want["router.weight"]};
  for (size_t e = 0; e < kExperts; ++e) {
    for (const auto& [name, tensor] : dense.experts[e]->named_parameters()) {
      want["experts." + std::to_string(e) + "." + name] = tensor;
      all.push_back(tensor);
    }
  }
  EXPECT_EQ(mixture.named_parameters().size(),
            1 + 4 * static_cast<size_t>(kExperts) / group.size());
  for (const auto& [name, tensor] : mixture.named_parameters()) {
    ASSERT_TRUE(want.contains(name)) << name;
    EXPECT_EQ(difference(tensor, want[name]), 0) << name;
    EXPECT_LT(difference(tensor.grad(), want[name].grad()), 1e-6) << name;
  }
  const double squares = squared_grad_norm(all).item<double>();
  EXPECT_NEAR(mixture_squared_grad_norm(mixture, group).item<double>(), squares, 1e-5 * squares);
}

TEST(ExpertParallel, ComputesWhatOneDeviceComputes) {
  constexpr Case kCases[] = {
      {.top_k = 1, .capacity_factor = 1, .capacity = 3, .drops = true},
      {.top_k = 1, .capacity_factor = 100, .capacity = 10, .drops = false},
      {.top_k = 2, .capacity_factor = 0.5, .capacity = 3, .drops = true},
      {.top_k = 2, .capacity_factor = 2, .capacity = 10, .drops = false},
      {.top_k = 4, .capacity_factor = 0.01, .capacity = 1, .drops = true},
  };
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    run_ranks(ranks, [&](ProcessGroup& group) {
      for (Case c : kCases) {
        expect_same(c, group);
        c.exchange = MixtureExchange::kPacked;
        SCOPED_TRACE("packed");
        expect_same(c, group);
      }
    });
  }
}

// Returns what all ranks send to each other in a forward and a backward, in bytes.
uint64_t bytes_of_step(const MixtureOptions& options, const std::function<Tensor()>& make_x,
                       const std::function<void(const MixtureOfExperts&)>& prepare) {
  std::atomic<uint64_t> bytes = 0;
  const auto count = [&](const ProcessGroup&, uint64_t, std::span<const Collective> calls) {
    for (const Collective& call : calls) {
      if (call.kind == BP_COLLECTIVE_ALL_TO_ALL) bytes += call.send.size_bytes();
    }
  };
  const GroupOptions observed{
      .observer = std::make_shared<CallObserver>(CallObserver{.on_submit = count, .on_wait = {}})};
  run_ranks(
      2,
      [&](ProcessGroup& group) {
        current_device().generator().set_seed(5);
        MixtureOfExperts mixture(kWidth, make_expert, group, options);
        prepare(mixture);
        const Tensor x = make_x();
        x.set_requires_grad();
        loss_of(mixture(x)).backward();
        EXPECT_TRUE(x.grad());
      },
      observed);
  return bytes;
}

TEST(ExpertParallel, SendsTheTokensThatFoundRoomAndTheirCounts) {
  MixtureOptions options{.expert_count = kExperts, .top_k = 1, .capacity_factor = 2};
  const auto make_x = [] { return input(kBatch * kLength, kWidth, 3).view({4, kLength, kWidth}); };
  // All tokens choose expert 2, which has room for 5 in each row.
  const auto prepare = [](const MixtureOfExperts& mixture) {
    const Tensor weight = mixture.named_parameters()[0].second.detach();
    weight.fill(0);
    weight.narrow(0, 2, 1).fill(1);
  };
  const auto make_ones = [] { return ones({4, kLength, kWidth}, BP_F32); };
  // Two exchanges forward and two backward, of two ranks.
  constexpr uint64_t kToken = kWidth * sizeof(float), kExchanges = 4 * 2;
  EXPECT_EQ(bytes_of_step(options, make_ones, prepare), kExchanges * kExperts * 4 * 5 * kToken);
  options.exchange = MixtureExchange::kPacked;
  // Rank 0 gets nothing, and so sends nothing back: 20 tokens of each rank go to rank 1.
  constexpr uint64_t kCounts = 2 * kExperts * sizeof(int64_t);
  EXPECT_EQ(bytes_of_step(options, make_ones, prepare), kExchanges * 4 * 5 * kToken + kCounts);
  options.exchange = MixtureExchange::kPadded;
  const uint64_t padded = bytes_of_step(options, make_x, [](const MixtureOfExperts&) {});
  options.exchange = MixtureExchange::kPacked;
  const uint64_t packed = bytes_of_step(options, make_x, [](const MixtureOfExperts&) {});
  EXPECT_LE(packed, padded / 2 + kCounts);  // There are twice as many slots as tokens.
}

// Rank 0 has experts that no token chooses, also in a group of one rank for each expert.
TEST(ExpertParallel, GivesZerosToExpertsWithoutTokens) {
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const auto run = [&](MixtureExchange exchange, const Tensor& x) {
        current_device().generator().set_seed(5);
        auto mixture = std::make_shared<MixtureOfExperts>(
            kWidth, make_expert, group,
            MixtureOptions{.expert_count = kExperts, .capacity_factor = 1.5, .exchange = exchange});
        const Tensor weight = mixture->named_parameters()[0].second.detach();
        weight.fill(0);
        weight.narrow(0, 3, 1).fill(0.2);
        x.set_requires_grad();
        loss_of((*mixture)(x)).backward();
        return mixture;
      };
      const Tensor x = ones({2, kLength, kWidth}, BP_F32), same = x.clone();
      const auto packed = run(MixtureExchange::kPacked, x);
      const auto padded = run(MixtureExchange::kPadded, same);
      EXPECT_EQ(packed->statistics().chosen.to_vector<int64_t>()[3], 2 * kLength);
      EXPECT_LT(difference(x.grad(), same.grad()), 1e-6);
      const auto want = padded->named_parameters(), got = packed->named_parameters();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(got[i].second.grad()) << got[i].first;
        EXPECT_LT(difference(got[i].second.grad(), want[i].second.grad()), 1e-6) << got[i].first;
        const bool is_idle = got[i].first.starts_with("experts.") && got[i].first[8] != '3';
        const float largest = amax(abs(got[i].second.grad())).item<float>();
        EXPECT_EQ(largest == 0, is_idle) << got[i].first;
      }
    });
  }
}

TEST(ExpertParallel, OrdersTokensByExpert) {
  // Rank 0 sends a token to each expert, and rank 1 two to the first one.
  const ExpertOrder order = order_by_expert({1, 1, 2, 0}, 2);
  EXPECT_EQ(order.counts, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(order.sorted, (std::vector<int64_t>{0, 2, 3, 1}));
  EXPECT_EQ(order.back, (std::vector<int64_t>{0, 3, 1, 2}));
}

TEST(ExpertParallel, RefusesPackedTokensInACapture) {
  run_ranks(1, [](ProcessGroup& group) {
    MixtureOfExperts mixture(kWidth, make_expert, group,
                             {.expert_count = kExperts, .exchange = MixtureExchange::kPacked});
    const Tensor x = ones({1, kLength, kWidth}, BP_F32);
    mixture(x);
    Capture capture;
    EXPECT_EQ(
        thrown_by([&] { mixture(x); }),
        "MixtureOfExperts: kPacked reads counts of tokens on the host, which a capture cannot "
        "do; allowed: kPacked outside of captures");
  });
}

// If all tokens are equally probable to go anywhere, the loss is 1; if they all go to one expert of
// 4, it is close to 4.
TEST(ExpertParallel, MeasuresTheBalance) {
  run_ranks(2, [](ProcessGroup& group) {
    MixtureOfExperts mixture(kWidth, make_expert, group, {.expert_count = kExperts});
    const Tensor weight = mixture.named_parameters()[0].second.detach();
    weight.fill(0);
    mixture(ones({1, 4, kWidth}, BP_F32));
    EXPECT_NEAR(mixture.statistics().balance_loss.item<double>(), 1, 1e-6);
    weight.narrow(0, 2, 1).fill(9);
    mixture(ones({1, 4, kWidth}, BP_F32));
    EXPECT_NEAR(mixture.statistics().balance_loss.item<double>(), 4, 1e-6);
    EXPECT_EQ(mixture.statistics().chosen.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 4, 0}));
    EXPECT_EQ(mixture.statistics().dropped.to_vector<int64_t>(),
              (std::vector<int64_t>{0, 0, 2, 0}));
  });
}

TEST(ExpertParallel, ComputesABlockOfATransformer) {
  constexpr MixtureOptions kMixture{.expert_count = 4, .top_k = 2};
  run_ranks(2, [&](ProcessGroup& group) {
    const std::optional<ProcessGroup> alone = group.split(group.rank(), 0, "alone");
    const auto make = [&](const ProcessGroup& ranks) {
      current_device().generator().set_seed(5);
      return std::make_shared<MixtureTransformerBlock>(16, 4, ranks, kMixture);
    };
    const auto plain = make(*alone), block = make(group);
    const Tensor x = input(16, 16, 3).view({2, 8, 16});
    const Tensor whole = (*plain)(x);
    const Tensor own = (*block)(x.narrow(0, group.rank(), 1));
    EXPECT_LT(difference(own, whole.detach().narrow(0, group.rank(), 1)), 1e-6);
    loss_of(whole).backward();
    loss_of(own).backward();
    average_mixture_gradients(*block, group);
    TensorMap want;
    for (const auto& [name, tensor] : plain->named_parameters()) want[name] = tensor.grad();
    for (const auto& [name, tensor] : block->named_parameters()) {
      EXPECT_LT(difference(tensor.grad(), want.at(name)), 1e-6) << name;
    }
    EXPECT_EQ(mixtures_of(*block).size(), 1u);
  });
}

TEST(ExpertParallel, NamesWhatDoesNotFit) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto made_with = [&](const MixtureOptions& options) {
      return thrown_by([&] { MixtureOfExperts mixture(kWidth, make_expert, group, options); });
    };
    EXPECT_EQ(made_with({.expert_count = 3}),
              "MixtureOfExperts: expert_count is 3; allowed: multiples of the number of ranks, "
              "which is 2");
    EXPECT_EQ(made_with({.expert_count = 0}),
              "MixtureOfExperts: expert_count is 0; allowed: multiples of the number of ranks, "
              "which is 2");
    for (const int64_t top_k : {0, 5}) {
      EXPECT_EQ(made_with({.expert_count = 4, .top_k = top_k}),
                "MixtureOfExperts: top_k is " + std::to_string(top_k) +
                    "; allowed: 1 to 4, the number of experts");
    }
    EXPECT_EQ(made_with({.expert_count = 4, .capacity_factor = 0}),
              "MixtureOfExperts: capacity_factor is 0.000000; allowed: finite numbers above 0");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(made_with({.expert_count = 4, .capacity_factor = nan}),
              "MixtureOfExperts: capacity_factor is nan; allowed: finite numbers above 0");
    MixtureOfExperts mixture(kWidth, make_expert, group, {.expert_count = 4});
    EXPECT_EQ(thrown_by([&] { mixture.statistics(); }),
              "MixtureOfExperts: there are no statistics before the first forward()");
    EXPECT_EQ(thrown_by([&] {
                mixture(zeros({3, kWidth}, BP_F32));
              }),
              "MixtureOfExperts: x has the shape (3, 6); allowed: (batch, length, 6), with tokens");
    EXPECT_EQ(thrown_by([&] { average_mixture_gradients(mixture, group); }),
              "MixtureOfExperts: a parameter of an expert has no gradient; call backward() first");
    MixtureOfExperts wrong(kWidth, [](int64_t) { return std::make_shared<nn::Linear>(kWidth, 2); },
                           group, {.expert_count = 2});
    EXPECT_EQ(thrown_by([&] {
                wrong(zeros({1, 4, kWidth}, BP_F32));
              }),
              "MixtureOfExperts: an expert made the shape (6, 2) of (6, 6); allowed: the same "
              "shape and dtype");
  });
}

}  // namespace
}  // namespace bp::distributed
