// Operators of language models, where ONNX's own tests leave out shapes, states and wrong calls.
#include "runtime/io/onnx/run_node.hpp"

namespace bp::onnx {
namespace {

::onnx::AttributeProto is(const char* name, int64_t value) { return attribute(name, value); }

TEST(OnnxLanguage, RotaryEmbeddingTurnsPairsAndLeavesTheRest) {
  // One token at place 1, by a quarter and by half a turn: (a, b) becomes (-b, a) and (-a, -b).
  const Tensor cosines = floats({1, 1, 0, -1}, {2, 2}), sines = floats({0, 0, 1, 0}, {2, 2});
  const Tensor place = ints({1}, {1, 1}), x = floats({1, 2, 3, 4, 5}, {1, 1, 1, 5});
  const auto turned = [&](const Tensor& given, const Attributes& attributes) {
    return values(run_node(23, "RotaryEmbedding", {given, cosines, sines, place}, attributes)[0]);
  };
  EXPECT_EQ(turned(x, {is("rotary_embedding_dim", 4)}), (Floats{-3, -2, 1, -4, 5}));
  EXPECT_EQ(turned(x, {is("rotary_embedding_dim", 4), is("interleaved", 1)}),
            (Floats{-2, 1, -3, -4, 5}));
  const Tensor flat = floats({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 8});
  EXPECT_EQ(turned(flat, {is("num_heads", 2)}), (Floats{-3, -2, 1, -4, -7, -6, 5, -8}));
  EXPECT_THROW(turned(flat, {}), Error);
  EXPECT_THROW(turned(x, {is("rotary_embedding_dim", 3)}), Error);
  EXPECT_THROW(turned(x, {is("rotary_embedding_dim", 2)}), Error);
}

TEST(OnnxLanguage, CachesAreFilledAtAPlaceForEachBatch) {
  const Tensor cache = floats(Floats(8), {2, 4, 1}), update = floats({1, 2, 3, 4}, {2, 2, 1});
  const auto filled = [&](const Ints& places, const char* mode) {
    return values(run_node(24, "TensorScatter", {cache, update, ints(places, {2})},
                           {attribute("mode", mode)})[0]);
  };
  EXPECT_EQ(filled({0, 2}, "linear"), (Floats{1, 2, 0, 0, 0, 0, 3, 4}));
  EXPECT_EQ(filled({3, 5}, "circular"), (Floats{2, 0, 0, 1, 0, 3, 4, 0}));
  EXPECT_THROW(filled({0, 2}, "round"), Error);
  EXPECT_THROW(run_node(24, "TensorScatter", {cache, update}, {is("axis", 0)}), Error);
  EXPECT_THROW(run_node(24, "TensorScatter", {update, cache}), Error);
  {
    const Stream stream(test_device());  // It stays failed.
    const StreamGuard guard(stream);
    EXPECT_THROW(filled({0, 3}, "linear"), Error);
  }
}

TEST(OnnxLanguage, AConvolutionGoesOnFromItsState) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, {1, 2, 3}), weight = floats({1, 10, 2, 3}, {2, 1, 2});
  const auto whole = run_node(27, "CausalConvWithState", {x, weight}, {}, 2);
  EXPECT_EQ(values(whole[0]), (Floats{10, 21, 32, 12, 23, 28}));
  EXPECT_EQ(values(whole[1]), (Floats{3, 6}));
  const auto part = [&](int64_t begin, int64_t count, const Tensor& state) {
    return run_node(27, "CausalConvWithState",
                    {x.narrow(2, begin, count).contiguous(), weight, Tensor(), state}, {}, 2);
  };
  const auto first = part(0, 1, Tensor()), rest = part(1, 2, first[1]);
  EXPECT_EQ(values(first[0]), (Floats{10, 12}));
  EXPECT_EQ(values(rest[0]), (Floats{21, 32, 23, 28}));
  EXPECT_THROW(part(0, 1, floats({1}, {1, 1, 1})), Error);
}

TEST(OnnxLanguage, LinearAttentionGoesOnFromItsState) {
  // One head of width 1: the state is a number, which decays by half and takes k * v.
  const float half = std::log(0.5F);
  const Tensor q = floats({1, 1}, {1, 2, 1}), k = floats({1, 2}, {1, 2, 1}),
               v = floats({3, 5}, {1, 2, 1}), state = floats({8}, {1, 1, 1, 1}),
               decay = floats({half, half}, {1, 2, 1}), beta = floats({1, 0.5}, {1, 2, 1});
  const auto attend = [&](const char* rule, const std::vector<Tensor>& more) {
    std::vector<Tensor> inputs = {q, k, v, state};
    inputs.insert(inputs.end(), more.begin(), more.end());
    const auto results = run_node(27, "LinearAttention", inputs,
                                  {is("q_num_heads", 1), is("kv_num_heads", 1),
                                   attribute("update_rule", rule), attribute("scale", 2.0F)},
                                  2);
    return Floats{values(results[0])[0], values(results[0])[1], values(results[1])[0]};
  };
  EXPECT_EQ(attend("linear", {}), (Floats{22, 42, 21}));
  EXPECT_EQ(attend("gated", {decay}), (Floats{14, 27, 13.5}));
  EXPECT_EQ(attend("delta", {Tensor(), beta}), (Floats{6, 4, 2}));
  EXPECT_EQ(attend("gated_delta", {decay, beta}), (Floats{6, 7, 3.5}));
  EXPECT_THROW(attend("gated", {}), Error);
  EXPECT_THROW(attend("linear", {decay}), Error);
  EXPECT_THROW(attend("other", {}), Error);
}

TEST(OnnxLanguage, SwiGluHasASlopeOfItsOwn) {
  const Tensor gate = floats({1, -2}, {2}), x = floats({3, 4}, {2});
  const auto expected = [](float alpha) {
    return Floats{3 / (1 + std::exp(-alpha)), -8 / (1 + std::exp(2 * alpha))};
  };
  expect_near(run_node(28, "SwiGLU", {gate, x})[0], expected(1));
  expect_near(run_node(28, "SwiGLU", {gate, x}, {attribute("alpha", 0.5F)})[0], expected(0.5));
  EXPECT_THROW(run_node(28, "SwiGLU", {gate, floats({1}, {1})}), Error);
}

TEST(OnnxLanguage, AModelMayChangeTheScoresOfFlexAttention) {
  const auto attend = [](const char* op) {
    TestModel model(24);
    auto* const preview = model.proto.add_opset_import();
    preview->set_domain("ai.onnx.preview");
    preview->set_version(1);
    ::onnx::GraphProto body;
    GraphBuilder(&body).input("s").output("t").node(op, {"s"}, {"t"});
    body.set_name("body");
    for (const char* name : {"q", "k", "v"}) model.graph().input(name);
    model.graph().output("y").node("FlexAttention", {"q", "k", "v"}, {"y"},
                                   {attribute("score_mod", body), attribute("scale", 1.0F)});
    model.proto.mutable_graph()->mutable_node(0)->set_domain("ai.onnx.preview");
    return model.parse(test_device())
        .run({{"q", floats({1}, {1, 1, 1, 1})},
              {"k", floats({2, -2}, {1, 1, 2, 1})},
              {"v", floats({3, 5}, {1, 1, 2, 1})}})
        .at("y");
  };
  expect_near(attend("Abs"), {4});
  expect_near(attend("Neg"), {3 + 2 / (1 + std::exp(-4.0F))});
  EXPECT_THROW(attend("Shape"), Error);
}

}  // namespace
}  // namespace bp::onnx
