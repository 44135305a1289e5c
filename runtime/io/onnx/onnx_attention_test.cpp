// Attention, of which ONNX's own tests cover neither every place of the keys, nor wrong calls. A
// node that gives the scores too runs step by step, and must agree with the call of sdpa.
#include "runtime/io/onnx/run_node.hpp"

namespace bp::onnx {
namespace {

// Returns numbers between -1 and 1 that look random.
Tensor numbers(IntList shape, float seed) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Floats values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(std::sin(seed + 1.7F * static_cast<float>(i * i % 97)));
  }
  return floats(values, shape);
}

Tensor bools(const std::vector<uint8_t>& values, IntList shape) {
  return from_host(values.data(), shape, BP_BOOL, test_device());
}

constexpr int64_t kNewest = 28;

// Runs Attention by sdpa, and step by step.
void expect_same(const std::vector<Tensor>& inputs, const Attributes& attributes) {
  const auto run_list = [&](size_t outputs) {
    return run_node(kNewest, "Attention", inputs, attributes, outputs);
  };
  const Tensor y = run_list(1)[0];
  const std::vector<Tensor> steps = run_list(4);
  EXPECT_EQ(y.shape(), steps[0].shape());
  expect_near(y, values(steps[0]));
}

TEST(OnnxAttention, TheOrderAndTheWindowsHideTheSameKeysStepByStep) {
  const auto is = [](const char* name, int64_t value) { return attribute(name, value); };
  const Attributes bands[] = {
      {},
      {is("is_causal", 1)},
      {is("left_window_size", 1)},
      {is("right_window_size", 0)},
      {is("left_window_size", 0), is("right_window_size", 2)},
      {is("is_causal", 1), is("left_window_size", 1), is("right_window_size", 3)},
      {is("left_window_size", INT64_MAX), is("right_window_size", INT64_MAX)},
  };
  const struct {
    int64_t queries, keys, past;
  } lengths[] = {{3, 3, 0}, {2, 5, 0}, {5, 2, 0}, {3, 3, 2}, {2, 4, 3}, {4, 1, 2}};
  for (const auto& [queries, keys, past] : lengths) {
    std::vector<Tensor> inputs = {numbers({2, 4, queries, 3}, 1), numbers({2, 2, keys, 3}, 2),
                                  numbers({2, 2, keys, 5}, 3), Tensor()};
    if (past > 0) {
      inputs.push_back(numbers({2, 2, past, 3}, 4));
      inputs.push_back(numbers({2, 2, past, 5}, 5));
    }
    for (size_t i = 0; i < std::size(bands); ++i) {
      SCOPED_TRACE("band " + std::to_string(i) + ", " + std::to_string(queries) + " queries, " +
                   std::to_string(keys) + " keys, " + std::to_string(past) + " of the past");
      expect_same(inputs, bands[i]);
    }
  }
}

TEST(OnnxAttention, AQueryStandsBehindThePastAlone) {
  // The values are 0, 1, ...: with equal scores the result is the mean of the places that are seen.
  const auto means = [](int64_t queries, int64_t keys, int64_t past, const Attributes& attributes) {
    Floats places(static_cast<size_t>(keys));
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<float>(i) + float(past);
    Floats earlier(static_cast<size_t>(past));
    for (size_t i = 0; i < earlier.size(); ++i) earlier[i] = static_cast<float>(i);
    std::vector<Tensor> inputs = {floats(Floats(size_t(queries)), {1, 1, queries, 1}),
                                  floats(Floats(size_t(keys)), {1, 1, keys, 1}),
                                  floats(places, {1, 1, keys, 1}), Tensor()};
    if (past > 0) {
      inputs.push_back(floats(Floats(size_t(past)), {1, 1, past, 1}));
      inputs.push_back(floats(earlier, {1, 1, past, 1}));
    }
    return run_node(kNewest, "Attention", inputs, attributes)[0];
  };
  const auto causal = attribute("is_causal", int64_t{1});
  expect_near(means(2, 4, 0, {causal}), {0, 0.5});
  expect_near(means(2, 2, 2, {causal}), {1, 1.5});
  expect_near(means(1, 3, 2, {causal}), {1});
  expect_near(means(2, 4, 0, {attribute("left_window_size", int64_t{0})}), {1.5, 2});
  expect_near(means(2, 4, 0, {attribute("right_window_size", int64_t{1})}), {0.5, 1});
}

TEST(OnnxAttention, MasksAreFilledUpAndComeBeforeTheSoftmax) {
  const Tensor q = numbers({1, 2, 2, 4}, 1), k = numbers({1, 2, 3, 4}, 2),
               v = numbers({1, 2, 3, 2}, 3);
  const Tensor all = bools({1, 1, 0, 1, 1, 0}, {2, 3});
  const auto attend = [&](const Tensor& mask, const Attributes& attributes = {}) {
    return run_node(kNewest, "Attention", {q, k, v, mask}, attributes)[0];
  };
  const Floats expected = values(attend(all));
  expect_near(attend(bools({1, 1, 1, 1}, {2, 2})), expected);
  expect_near(attend(floats({0, 0}, {2})), expected);
  expect_near(attend(floats({0, 0, -HUGE_VALF}, {1, 1, 3})), expected);
  EXPECT_NE(values(attend(all, {attribute("softcap", 0.1F)})), expected);
  expect_same({q, k, v, floats({0.5, -1}, {2})}, {attribute("softcap", 0.1F)});
  EXPECT_EQ(values(attend(bools({0, 0, 0, 1, 1, 1}, {2, 3})))[0], 0);
}

TEST(OnnxAttention, TheLengthsOfACacheHideWhatIsBehindThem) {
  const Tensor q = numbers({2, 2, 2, 4}, 1), k = numbers({2, 2, 4, 4}, 2),
               v = numbers({2, 2, 4, 3}, 3), lengths = ints({4, 1}, {2});
  const std::vector<Tensor> inputs = {q, k, v, Tensor(), Tensor(), Tensor(), lengths};
  const Attributes causal = {attribute("is_causal", int64_t{1})};
  expect_same(inputs, {});
  expect_same(inputs, causal);
  const Floats y = values(run_node(24, "Attention", inputs, causal)[0]);
  const Floats whole = values(run_node(24, "Attention", {q, k, v}, {})[0]);
  for (size_t i = 3; i < 6; ++i) EXPECT_NEAR(y[i], whole[i], 1e-5);  // The last query of batch 0.
  // The first query of batch 1 is before its only key, which the second one sees.
  for (size_t i = 12; i < 15; ++i) EXPECT_EQ(y[i], 0);
  for (size_t i = 15; i < 18; ++i) EXPECT_NEAR(y[i], values(v)[24 + i - 15], 1e-5);
}

TEST(OnnxAttention, TheScoresAreThoseOfTheMode) {
  const Tensor q = floats({1, 2}, {1, 1, 1, 2}), k = floats({3, 4, 1, 0}, {1, 1, 2, 2}),
               v = floats({1, 2}, {1, 1, 2, 1}), mask = floats({-1, 2}, {2});
  const auto scores = [&](int64_t mode) {
    return run_node(23, "Attention", {q, k, v, mask},
                    {attribute("scale", 0.5F), attribute("softcap", 2.0F),
                     attribute("qk_matmul_output_mode", mode)},
                    4)[3];
  };
  const float a = 2 * std::tanh(2.75F), b = 2 * std::tanh(0.25F);
  const float share = 1 / (1 + std::exp(b + 2 - (a - 1)));
  expect_near(scores(0), {5.5, 0.5});
  expect_near(scores(1), {a, b});
  expect_near(scores(2), {a - 1, b + 2});
  expect_near(scores(3), {share, 1 - share});
  EXPECT_THROW(scores(4), Error);
}

TEST(OnnxAttention, RefusesWhatDoesNotFitTogether) {
  const Tensor q = numbers({1, 2, 6}, 1), x = numbers({1, 2, 3, 4}, 2);
  const auto heads = [](int64_t q_heads, int64_t kv_heads) {
    return Attributes{attribute("q_num_heads", q_heads), attribute("kv_num_heads", kv_heads)};
  };
  const auto attend = [](const std::vector<Tensor>& inputs, const Attributes& attributes,
                         int64_t opset = kNewest) {
    return run_node(opset, "Attention", inputs, attributes)[0];
  };
  EXPECT_NO_THROW(attend({q, q, q}, heads(2, 2)));
  EXPECT_THROW(attend({q, q, q}, {}), Error);
  EXPECT_THROW(attend({q, q, q}, heads(4, 2)), Error);
  EXPECT_THROW(attend({q, q, q}, heads(2, 3)), Error);
  EXPECT_THROW(attend({q, q, x}, heads(2, 2)), Error);
  EXPECT_THROW(attend({x, x, x, Tensor(), x}, {}), Error);
  EXPECT_THROW(attend({x, x, x, Tensor(), x, x, ints({3}, {1})}, {}), Error);
  EXPECT_THROW(attend({x, x, x, Tensor(), Tensor(), Tensor(), ints({3, 3}, {2})}, {}), Error);
  EXPECT_THROW(attend({x, x, x, numbers({3, 4}, 1)}, {}), Error);
  EXPECT_THROW(attend({x, x, x}, {attribute("left_window_size", int64_t{-2})}), Error);
  EXPECT_THROW(attend({x, x, x}, {attribute("left_window_size", int64_t{1})}, 24), Error);
}

}  // namespace
}  // namespace bp::onnx
