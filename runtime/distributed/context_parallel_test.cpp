#include "backplane/runtime/distributed/context_parallel.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/distributed/mesh.hpp"
#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_models.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

double difference(const Tensor& a, const Tensor& b) {
  const NoGradGuard no_grad;
  return amax(abs(a.detach().to(BP_F32) - b.detach().to(BP_F32))).item<double>();
}

TEST(ContextParallel, CutsAndJoinsSequences) {
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const int64_t n = group.size(), rank = group.rank();
      const Tensor places = arange(4 * n, BP_I64);
      const std::vector<int64_t> own = cut_sequence(places, 0, group).to_vector<int64_t>();
      const int64_t second = 2 * (2 * n - 1 - rank);
      EXPECT_EQ(own, (std::vector<int64_t>{2 * rank, 2 * rank + 1, second, second + 1}));
      const Tensor x = input(3, 4 * n * 5, 7).view({3, 4 * n, 5});
      const Tensor part = cut_sequence(x, 1, group);
      EXPECT_EQ(part.shape(), IntList({3, 4, 5}));
      EXPECT_EQ(join_sequence(part, 1, group).to_vector<float>(), x.to_vector<float>());
    });
  }
}

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, double, Causal,
                             const ProcessGroup&);

struct Shape {
  int64_t heads, key_heads, length;
};

// Compares the result and all gradients with sdpa() of the whole sequence.
void expect_same(Attention attention, const Shape& s, Causal causal, bp_dtype dtype, double bound,
                 const ProcessGroup& group) {
  constexpr int64_t kBatch = 2, kWidth = 6, kValueWidth = 4;
  const auto make = [&](int64_t heads, int64_t width, uint32_t seed) {
    const Tensor values = input(kBatch * heads * s.length, width, seed) * 4;
    return values.view({kBatch, heads, s.length, width}).to(dtype);
  };
  const Tensor whole[] = {make(s.heads, kWidth, 1), make(s.key_heads, kWidth, 2),
                          make(s.key_heads, kValueWidth, 3)};
  const Tensor weights = make(s.heads, kValueWidth, 4);
  std::vector<Tensor> parts;
  for (const Tensor& tensor : whole) {
    parts.push_back(cut_sequence(tensor, 2, group).clone().set_requires_grad());
    tensor.set_requires_grad();
  }
  const Tensor want = sdpa(whole[0], whole[1], whole[2], 0.4, {}, {}, causal);
  const Tensor got = attention(parts[0], parts[1], parts[2], 0.4, causal, group);
  EXPECT_EQ(got.dtype(), dtype);
  EXPECT_LT(difference(got, cut_sequence(want.detach(), 2, group)), bound);
  sum(want * weights).backward();
  sum(got * cut_sequence(weights, 2, group)).backward();
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_LT(difference(parts[i].grad(), cut_sequence(whole[i].grad(), 2, group)), bound)
        << "gradient " << i << ", " << group.size() << " ranks";
  }
}

TEST(ContextParallel, ComputesAttentionInARing) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const int64_t length = 6 * int64_t{group.size()};
      for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
        expect_same(ring_attention, {3, 1, length}, causal, BP_F32, 1e-5, group);
      }
      expect_same(ring_attention, {2, 2, length}, Causal::kTopLeft, BP_F32, 1e-5, group);
      expect_same(ring_attention, {2, 1, length}, Causal::kTopLeft, BP_BF16, 0.1, group);
    });
  }
}

TEST(ContextParallel, ComputesAttentionByHeads) {
  for (const uint32_t ranks : {1u, 2u, 4u}) {
    run_ranks(ranks, [](ProcessGroup& group) {
      const int64_t length = 4 * int64_t{group.size()};
      for (const Causal causal : {Causal::kNone, Causal::kTopLeft}) {
        expect_same(all_to_all_attention, {8, 4, length}, causal, BP_F32, 1e-5, group);
      }
    });
  }
}

// The scores of one block exceed those of the others by hundreds, in either order.
TEST(ContextParallel, MergesBlocksOfVeryDifferentWeights) {
  run_ranks(2, [](ProcessGroup& group) {
    for (const double first : {-300.0, 300.0}) {
      const Tensor q = full({1, 1, 8, 1}, 1, BP_F32);
      const Tensor places = arange(8, BP_F32).view({1, 1, 8, 1});
      const Tensor k = places * (-first / 4) + first;
      const Tensor want = sdpa(q, k, places, 1);
      const auto part = [&](const Tensor& x) { return cut_sequence(x, 2, group); };
      const Tensor got = ring_attention(part(q), part(k), part(places), 1, Causal::kNone, group);
      EXPECT_LT(difference(got, part(want)), 1e-5) << first;
    }
  });
}

// A block on two axes: the batch is cut over "data", and sequences over "context".
TEST(ContextParallel, ComputesABlockOnAMesh) {
  for (const ContextKind kind : {ContextKind::kRing, ContextKind::kAllToAll}) {
    run_ranks(4, [&](ProcessGroup& world) {
      const DeviceMesh mesh(world, {{"data", 2}, {"context", 2}});
      const ProcessGroup context = mesh.group("context");
      const nn::TransformerBlockOptions options{
          .attention = {.key_head_count = 2, .causal = Causal::kTopLeft}};
      current_device().generator().set_seed(5);
      nn::TransformerBlock plain(16, 4, options);
      current_device().generator().set_seed(5);
      ContextParallelTransformerBlock block(16, 4, context, kind, options);
      const Tensor x = input(16, 16, 3).view({2, 8, 16});
      const Tensor own = x.narrow(0, mesh.group("data").rank(), 1);
      loss_of(plain(x)).backward();
      loss_of(block(cut_sequence(own, 1, context))).backward();
      average_gradients(block.parameters(), world);
      const auto want = plain.named_parameters(), got = block.named_parameters();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got[i].first, want[i].first);
        EXPECT_EQ(difference(got[i].second, want[i].second), 0) << want[i].first;
        EXPECT_LT(difference(got[i].second.grad(), want[i].second.grad()), 1e-6) << want[i].first;
      }
    });
  }
}

TEST(ContextParallel, NamesWhatDoesNotFit) {
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_EQ(thrown_by([&] {
                cut_sequence(zeros({3, 6}, BP_F32), 1, group);
              }),
              "cut_sequence: the length is 6, for 2 ranks; allowed: multiples of 4, since each "
              "rank has two chunks");
    EXPECT_EQ(thrown_by([&] {
                cut_sequence(zeros({3, 6}, BP_F32), 2, group);
              }),
              "cut_sequence: axis is 2, for the shape (3, 6); allowed: 0 to 1");
    EXPECT_EQ(thrown_by([&] { join_sequence(zeros({3}, BP_F32), 0, group); }),
              "join_sequence: the length of the part is 3; allowed: an even length, as "
              "cut_sequence() makes it");
    const Tensor x = zeros({1, 3, 4, 2}, BP_F32), odd = zeros({1, 3, 5, 2}, BP_F32);
    EXPECT_EQ(thrown_by([&] { ring_attention(odd, x, x, 1, Causal::kNone, group); }),
              "ring_attention: q has the shape (1, 3, 5, 2), k (1, 3, 4, 2) and v (1, 3, 4, 2); "
              "allowed: (batch, heads, length, width), with one even length, as cut_sequence() "
              "makes it");
    EXPECT_EQ(thrown_by([&] { all_to_all_attention(x, x, x, 1, Causal::kNone, group); }),
              "all_to_all_attention: the heads are 3; allowed: multiples of the number of ranks, "
              "which is 2, or ring_attention() for any number");
    EXPECT_EQ(thrown_by([&] {
                ContextParallelTransformerBlock block(12, 2, group, ContextKind::kAllToAll,
                                                      {.attention = {.key_head_count = 1}});
              }),
              "all_to_all_attention: the key heads are 1; allowed: multiples of the number of "
              "ranks, which is 2, or ring_attention() for any number");
    EXPECT_EQ(
        thrown_by([&] { ContextParallelTransformerBlock block(13, 2, group, ContextKind::kRing); }),
        "ContextParallelTransformerBlock: width is 13, head_count 2 and key_head_count 2; "
        "allowed: a divisor of width, and a divisor of head_count");
  });
}

}  // namespace
}  // namespace bp::distributed
