#include "backplane/runtime/nn.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

// Returns the largest difference between two tensors of one shape.
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

// Computes attention head by head from queries, keys and values (length, width).
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, Causal causal) {
  const int64_t length = q.shape(0);
  Tensor scores = matmul(q, k.transpose()) / std::sqrt(static_cast<double>(q.shape(1)));
  const Tensor column = arange(length, BP_I64).reshape({1, length}).expand({length, length});
  const Tensor row = arange(length, BP_I64).reshape({length, 1}).expand({length, length});
  if (causal != Causal::kNone) scores = where(lt(row, column), full({1}, -1e30, BP_F32), scores);
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
                             part("value", head / shared), options.causal));
    }
    EXPECT_LT(difference(y.select(0, item), project("out", cat(heads, 1))), 1e-5);
  }
}

TEST_F(Layers, AttendAsHeadByHead) { check_attention({}); }
TEST_F(Layers, AttendCausally) { check_attention({.causal = Causal::kTopLeft}); }
TEST_F(Layers, AttendWithSharedKeys) {
  check_attention({.key_head_count = 2, .causal = Causal::kTopLeft});
}

TEST_F(Layers, ShowNoPositionALaterOne) {
  TransformerBlock block(8, 2, {.attention = {.causal = Causal::kTopLeft}});
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
    // The softmax does not change if all keys move by the same vector.
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

// ---- Parameters and states ---------------------------------------------------------------------

// Two layers, whose names the test chooses.
class Pair : public Module {
 public:
  Pair(const char* first, const char* second, std::shared_ptr<Module> layer,
       std::shared_ptr<Module> other) {
    add_module(first, std::move(layer));
    add_module(second, std::move(other));
  }
  Tensor forward(const Tensor& x) override { return x; }
  void add(const char* name) { add_parameter(name, ones({1}, BP_F32)); }
};

TEST_F(Layers, ListASharedLayerUnderEachNameAndItsParametersOnce) {
  const auto shared = std::make_shared<Linear>(2, 2);
  Sequential model({shared, std::make_shared<Relu>(), shared});
  EXPECT_EQ(model.named_parameters().size(), 4u);
  EXPECT_EQ(model.parameters().size(), 2u);
  EXPECT_EQ(model.parameter_count(), 6);
  const TensorMap state = model.state_dict();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state.at("0.weight").to_vector<float>(), state.at("2.weight").to_vector<float>());
  Sequential other({shared, std::make_shared<Linear>(2, 2)});
  EXPECT_EQ(other.parameter_count(), 12);
}

TEST_F(Layers, TakeEachNameOnceAndNoNullPointer) {
  const auto layer = std::make_shared<Linear>(1, 1);
  EXPECT_EQ(message_of([&] { Pair("a", "a", layer, layer); }), "Module: the name 'a' is taken");
  EXPECT_EQ(message_of([&] { Pair("a", "b", layer, nullptr); }),
            "Module: the layer 'b' is a null pointer");
  Pair pair("a", "b", layer, layer);
  pair.add("weight");
  EXPECT_EQ(message_of([&] { pair.add("weight"); }), "Module: the name 'weight' is taken");
  EXPECT_EQ(message_of([&] { pair.add("a"); }), "Module: the name 'a' is taken");
  EXPECT_EQ(pair.named_parameters().size(), 5u);
}

TEST_F(Layers, LoadAllOfAStateOrNothing) {
  Sequential model({std::make_shared<Linear>(2, 3), std::make_shared<LayerNorm>(3)});
  const TensorMap before = model.state_dict();
  TensorMap copies;
  for (const auto& [name, tensor] : before) copies[name] = tensor.clone();
  TensorMap wrong = copies;
  wrong["0.bias"] = zeros({4}, BP_F32);
  wrong["1.weight"] = zeros({3}, BP_F64);
  wrong["0.weight"] = zeros({3, 2}, BP_F32);
  wrong.erase("1.bias");
  wrong["extra"] = zeros({1}, BP_F32);
  EXPECT_EQ(message_of([&] { model.load_state_dict(wrong); }),
            "load_state_dict: the state does not fit the model, so nothing was loaded:\n"
            "  '0.bias' is (4,); the model has (3,)\n"
            "  '1.weight' is f64; the model has f32\n"
            "  '1.bias' is missing\n"
            "  'extra' is not a parameter of the model");
  for (const auto& [name, tensor] : before) {
    EXPECT_EQ(tensor.to_vector<float>(), copies.at(name).to_vector<float>()) << name;
  }
}

TEST_F(Layers, LoadCopiesAndShareTheirOwnState) {
  Linear layer(2, 2);
  TensorMap state = layer.state_dict();
  const Floats weight = state.at("weight").to_vector<float>();
  layer.load_state_dict(state);
  EXPECT_EQ(layer.parameters()[0].detach().to_vector<float>(), weight);
  state.at("weight").fill(3);
  EXPECT_EQ(layer.parameters()[0].detach().to_vector<float>(), Floats(4, 3)) << "it is shared";
  TensorMap apart;
  for (const auto& [name, tensor] : state) apart[name] = tensor.clone();
  layer.load_state_dict(apart);
  apart.at("weight").fill(5);
  EXPECT_EQ(layer.parameters()[0].detach().to_vector<float>(), Floats(4, 3)) << "it is a copy";
  EXPECT_TRUE(layer.parameters()[0].requires_grad());
  EXPECT_TRUE(layer.parameters()[0].is_leaf());
}

TEST_F(Layers, LoadAStateOfAnotherDevice) {
  TensorMap there;
  {
    const DeviceGuard on_second(second_test_device());
    there = Linear(2, 2).state_dict();
  }
  Linear layer(2, 2);
  layer.load_state_dict(there);
  const Tensor weight = layer.parameters()[0].detach();
  EXPECT_EQ(weight.device(), test_device());
  EXPECT_EQ(weight.to_vector<float>(), there.at("weight").to_vector<float>());
}

TEST_F(Layers, BeginTheSameForTheSameSeedAndWithinTheirBounds) {
  manual_seed(11);
  const Floats first = Linear(100, 40).state_dict().at("weight").to_vector<float>();
  const Floats next = Linear(100, 40).state_dict().at("weight").to_vector<float>();
  manual_seed(11);
  EXPECT_EQ(Linear(100, 40).state_dict().at("weight").to_vector<float>(), first);
  EXPECT_NE(next, first);
  EXPECT_LE(*std::ranges::max_element(first), 0.1F);
  EXPECT_GE(*std::ranges::min_element(first), -0.1F);
  EXPECT_GT(*std::ranges::max_element(first), 0.09F);
  const Tensor table = Embedding(50, 40, 2).state_dict().at("weight");
  EXPECT_NEAR(mean(table * table).item<double>(), 4, 0.4) << "the square of the deviation";
  EXPECT_LE(amax(abs(Conv2d(4, 2, 5).state_dict().at("bias"))).item<double>(), 0.1);
}

TEST_F(Layers, TellEveryLayerWhetherItTrains) {
  const auto dropout = std::make_shared<Dropout>(0.5);
  const auto inner = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{dropout});
  Sequential model({inner});
  EXPECT_TRUE(dropout->is_training());
  model.train(false);
  EXPECT_FALSE(dropout->is_training());
  const Tensor x = ones({8}, BP_F32);
  EXPECT_EQ(model(x).impl(), x.impl()) << "nothing is computed";
  model.train();
  EXPECT_TRUE(dropout->is_training());
  EXPECT_EQ(Dropout(1)(x).to_vector<float>(), Floats(8, 0));
  for (const double p : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(message_of([&] { Dropout{p}; }).find("Dropout: p is "), 0u) << p;
  }
}

TEST_F(Layers, ConvolveInGroups) {
  Conv2d layer(4, 2, 1, {.groups = 2});
  const TensorMap state = layer.state_dict();
  EXPECT_EQ(state.at("weight").shape(), IntList({2, 2, 1, 1}));
  const Tensor x = arange(4, BP_F32).reshape({1, 4, 1, 1});
  const Floats w = state.at("weight").to_vector<float>();
  const Floats b = state.at("bias").to_vector<float>();
  const Floats y = layer(x).detach().to_vector<float>();
  EXPECT_NEAR(y[0], w[1] + b[0], 1e-6);
  EXPECT_NEAR(y[1], 2 * w[2] + 3 * w[3] + b[1], 1e-6);
  EXPECT_EQ(message_of([] { Conv2d(3, 4, 1, {.groups = 2}); }),
            "Conv2d: in_channels is 3; allowed: multiples of groups, which is 2");
  EXPECT_EQ(message_of([] { Conv2d(4, 3, 1, {.groups = 2}); }),
            "Conv2d: out_channels is 3; allowed: multiples of groups, which is 2");
  EXPECT_EQ(message_of([] { Conv2d(4, 4, 1, {.groups = 0}); }),
            "Conv2d: groups is 0; allowed: from 1");
}

TEST_F(Layers, GoOneBehindTheOther) {
  Sequential model({std::make_shared<MaxPool2d>(2), std::make_shared<Flatten>()});
  const Tensor y = model(arange(32, BP_F32).reshape({2, 1, 4, 4}));
  EXPECT_EQ(y.shape(), IntList({2, 4}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{5, 7, 13, 15, 21, 23, 29, 31}));
  Sequential none({});
  EXPECT_EQ(none(y).impl(), y.impl());
  EXPECT_EQ(none.parameter_count(), 0);
}

TEST_F(Layers, WithoutABiasHaveNone) {
  EXPECT_EQ(MultiHeadAttention(8, 2, {.has_bias = false}).parameter_count(), 4 * 64);
  EXPECT_EQ(LayerNorm(8, 1e-5, false).parameter_count(), 8);
  EXPECT_EQ(Conv2d(2, 3, 2, {.has_bias = false}).parameter_count(), 24);
  Linear layer(3, 2, false);
  EXPECT_EQ(layer(zeros({4, 3}, BP_F32)).detach().to_vector<float>(), Floats(8, 0));
}

TEST_F(Layers, RunTheirHooksAroundForward) {
  std::vector<std::string> calls;
  const auto note = [&](const std::string& text, double add) {
    return [&calls, text, add](const Tensor& x) {
      calls.push_back(text);
      return add == 0 ? x : x + add;
    };
  };
  const auto layer = std::make_shared<Relu>();
  Sequential model({layer});
  const Tensor x = full({1}, -1, BP_F32);
  {
    const ForwardHook outer(layer, "outer", note("outer before", 3), note("outer after", 10));
    ForwardHook inner(layer, "inner", note("inner before", 0), {});
    EXPECT_EQ(layer->hook_names(), (std::vector<std::string>{"outer", "inner"}));
    EXPECT_EQ(model(x).item<float>(), 12);
    EXPECT_EQ(calls, (std::vector<std::string>{"outer before", "inner before", "outer after"}));
    const ForwardHook moved = std::move(inner);
    EXPECT_EQ(model(x).item<float>(), 12);
    EXPECT_EQ(calls.size(), 6u);
    EXPECT_EQ(layer->forward(x).item<float>(), 0) << "forward() itself runs no hooks";
  }
  EXPECT_TRUE(layer->hook_names().empty());
  EXPECT_EQ(model(x).item<float>(), 0);
  EXPECT_THROW(ForwardHook(nullptr, "none", {}, {}), Error);
}

TEST_F(Layers, AreFoundByName) {
  const auto inner = std::make_shared<Linear>(2, 2);
  const Sequential model({std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>{inner}),
                          std::make_shared<Relu>()});
  std::vector<std::string> names;
  for (const auto& [name, layer] : model.named_modules()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0", "0.0", "1"}));
  EXPECT_EQ(model.named_modules()[1].second, inner);
}

}  // namespace
}  // namespace bp::nn
