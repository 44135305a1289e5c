#include "backplane/runtime/nn.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "backplane/runtime/autograd.hpp"
#include "runtime/test_device.hpp"

namespace bp::nn {
namespace {

using Floats = std::vector<float>;

class Layers : public testing::Test {
 protected:
  void SetUp() override { manual_seed(3); }

  DeviceGuard guard{test_device()};
};

// Largest difference between two tensors of one shape.
double difference(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item<double>(); }

TEST_F(Layers, NormalizeTheLastAxis) {
  const Tensor x = from_host<float>({1, 2, 3, 6, -1, 0, 5, 8}, {2, 4});
  LayerNorm norm(4);
  const Tensor y = norm(x);
  EXPECT_NEAR(amax(abs(mean(y, {1}))).item<double>(), 0, 1e-6);
  EXPECT_NEAR(mean(y * y).item<double>(), 1, 1e-4);
  RmsNorm rms(4);
  EXPECT_NEAR(mean(rms(x) * rms(x)).item<double>(), 1, 1e-4);
  EXPECT_NE(mean(rms(x)).item<double>(), 0) << "the mean is left alone";
}

TEST_F(Layers, ActivateBehindALinearLayerAsApart) {
  const Tensor x = uniform({5, 3}, BP_F32) - 0.5;
  Linear plain(3, 4);
  Linear fused(3, 4, true, Activation::kGelu);
  fused.load_state_dict(plain.state_dict());
  Gelu gelu_layer;
  EXPECT_LT(difference(fused(x), gelu_layer(plain(x))), 1e-6);
  EXPECT_LT(difference(Silu()(x), x * sigmoid(x)), 1e-6);
}

// Attention by hand, head by head, of queries, keys and values (length, width).
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
  const int64_t length = q.shape(0);
  Tensor scores = matmul(q, k.transpose()) / std::sqrt(static_cast<double>(q.shape(1)));
  const Tensor column = arange(length, BP_I64).reshape({1, length}).expand({length, length});
  const Tensor row = arange(length, BP_I64).reshape({length, 1}).expand({length, length});
  if (is_causal) scores = where(lt(row, column), full({1}, -1e30, BP_F32), scores);
  return matmul(softmax(scores, 1), v);
}

void check_attention(const AttentionOptions& options) {
  constexpr int64_t kWidth = 8, kHeads = 4, kLength = 5;
  MultiHeadAttention attention(kWidth, kHeads, options);
  const Tensor x = uniform({2, kLength, kWidth}, BP_F32) - 0.5;
  const TensorMap state = attention.state_dict();
  const auto project = [&](const std::string& name, const Tensor& of) {
    return linear(of, state.at(name + ".weight"), state.at(name + ".bias"));
  };
  const int64_t shared = options.key_head_count == 0 ? 1 : kHeads / options.key_head_count;
  const NoGradGuard no_grad;
  const Tensor y = attention(x);
  for (int64_t item = 0; item < 2; ++item) {
    const Tensor row = x.select(0, item);
    std::vector<Tensor> heads;
    for (int64_t head = 0; head < kHeads; ++head) {
      const auto part = [&](const std::string& name, int64_t index) {
        return project(name, row).narrow(1, index * 2, 2);
      };
      heads.push_back(attend(part("query", head), part("key", head / shared),
                             part("value", head / shared), options.is_causal));
    }
    EXPECT_LT(difference(y.select(0, item), project("out", cat(heads, 1))), 1e-5);
  }
}

TEST_F(Layers, AttendAsHeadByHead) { check_attention({}); }
TEST_F(Layers, AttendCausally) { check_attention({.is_causal = true}); }
TEST_F(Layers, AttendWithSharedKeys) { check_attention({.key_head_count = 2, .is_causal = true}); }

TEST_F(Layers, ShowNoPositionALaterOne) {
  TransformerBlock block(8, 2, {.attention = {.is_causal = true}});
  const NoGradGuard no_grad;
  const Tensor x = uniform({1, 6, 8}, BP_F32);
  const Tensor changed = x.clone();
  changed.narrow(1, 4, 2).fill(7);
  const Tensor before = block(x);
  const Tensor after = block(changed);
  EXPECT_EQ(before.narrow(1, 0, 4).to_vector<float>(), after.narrow(1, 0, 4).to_vector<float>());
  EXPECT_GT(difference(before, after), 0.1);
}

TEST_F(Layers, LeadAGradientToEveryParameterOfABlock) {
  TransformerBlock block(8, 2, {.activation = Activation::kSilu});
  const Tensor x = uniform({2, 3, 8}, BP_F32).set_requires_grad();
  sum(block(x) * uniform({2, 3, 8}, BP_F32)).backward();
  for (const auto& [name, parameter] : block.named_parameters()) {
    ASSERT_TRUE(parameter.grad()) << name;
    // The softmax does not see what all keys have in common.
    if (name == "attention.key.bias") continue;
    EXPECT_GT(amax(abs(parameter.grad())).item<double>(), 1e-6) << name;
  }
  EXPECT_TRUE(x.grad());
  EXPECT_EQ(block.parameter_count(), 2 * 2 * 8 + 4 * (64 + 8) + (256 + 32) + (256 + 8));
}

TEST_F(Layers, DropOnlyInTraining) {
  TransformerBlock block(4, 1, {.dropout = 0.5});
  const Tensor x = uniform({1, 3, 4}, BP_F32);
  EXPECT_NE(block(x).to_vector<float>(), block(x).to_vector<float>());
  block.train(false);
  EXPECT_EQ(block(x).to_vector<float>(), block(x).to_vector<float>());
}

TEST_F(Layers, RefuseWidthsThatDoNotDivide) {
  EXPECT_EQ(message_of([] { MultiHeadAttention(8, 3); }),
            "MultiHeadAttention: head_count is 3; allowed: divisors of width, which is 8");
  EXPECT_EQ(message_of([] { MultiHeadAttention(8, 4, {.key_head_count = 3}); }),
            "MultiHeadAttention: key_head_count is 3; allowed: divisors of head_count, which is 4");
  MultiHeadAttention attention(8, 2);
  EXPECT_EQ(message_of([&] {
              attention(ones({3, 8}, BP_F32));
            }),
            "MultiHeadAttention: x has the shape (3, 8); allowed: (batch, length, width)");
  EXPECT_EQ(message_of([] { LayerNorm(0); }), "LayerNorm: width is 0; allowed: from 1");
  EXPECT_EQ(message_of([] { RmsNorm(0); }), "RmsNorm: width is 0; allowed: from 1");
}

}  // namespace
}  // namespace bp::nn
