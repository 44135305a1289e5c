// Products of quantised factors, which are products of the codes, and constants that are given with
// a model.
#include <functional>

#include "backplane/runtime/capture.hpp"
#include "runtime/io/onnx/run_node.hpp"

namespace bp::onnx {
namespace {

constexpr int64_t kRows = 3, kDepth = 4, kColumns = 2;
const std::vector<int64_t> kCodes = {1, -2, 3, 4, -5, 6, 127, -128};  // (depth, columns)
const Floats kInput = {1, 2, 3, 4, -1, 0.5, 0, 2, 0, 0, 1, -4};

// A model of y = x w, where w is made by DequantizeLinear. The codes are a constant.
struct Product {
  TestModel model{21};
  TensorMap inputs;
  Attributes dequantize;
  double zero = 0;
  std::function<double(int64_t row, int64_t column)> scale;

  Product() {
    auto* const codes = model.graph().start("codes", {kDepth, kColumns}, ::onnx::TensorProto::INT8);
    for (const int64_t code : kCodes) codes->add_int32_data(static_cast<int32_t>(code));
    model.graph().input("x").output("y");
    inputs["x"] = floats(kInput, {kRows, kDepth});
  }
  void add_zero() {
    zero = 3;
    auto* const points = model.graph().start("zero", {kColumns}, ::onnx::TensorProto::INT8);
    for (int64_t i = 0; i < kColumns; ++i) points->add_int32_data(3);
  }
  void finish(const char* op, const Attributes& attributes = {}) {
    model.graph().node("DequantizeLinear",
                       zero == 0 ? Names{"codes", "scale"} : Names{"codes", "scale", "zero"}, {"w"},
                       dequantize);
    model.graph().node(op, {"x", "w"}, {"y"}, attributes);
  }
  Floats expected() const {
    Floats y;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < kDepth; ++i) {
          const double code = static_cast<double>(kCodes[size_t(i * kColumns + column)]) - zero;
          sum += kInput[size_t(row * kDepth + i)] * code * scale(i, column);
        }
        y.push_back(static_cast<float>(sum));
      }
    }
    return y;
  }
};

// Runs a model, and counts the calls of its nodes by operator.
std::map<std::string, uint64_t> calls_of(const OnnxModel& model, const TensorMap& inputs,
                                         Tensor& y) {
  std::map<std::string, uint64_t> calls;
  y = model
          .run(inputs, [&](const OnnxNodeRun& run) { calls[run.node.op_type] += run.native_count; })
          .at("y");
  return calls;
}

TEST(OnnxQuantized, ProductsMultiplyTheCodesOfAWeight) {
  Product whole, columns, blocks;
  whole.model.graph().floats("scale", {}, {0.5});
  whole.scale = [](int64_t, int64_t) { return 0.5; };
  columns.model.graph().floats("scale", {kColumns}, {0.5, 2});
  columns.scale = [](int64_t, int64_t column) { return column == 0 ? 0.5 : 2; };
  columns.dequantize = {attribute("axis", int64_t{1})};
  columns.add_zero();
  blocks.model.graph().floats("scale", {2, kColumns}, {1, 2, 3, 4});
  blocks.scale = [](int64_t row, int64_t column) {
    return static_cast<double>(row - row % 2 + column + 1);
  };
  blocks.dequantize = {attribute("axis", int64_t{0}), attribute("block_size", int64_t{2})};
  for (Product* const product : {&whole, &columns, &blocks}) {
    product->finish("MatMul");
    const OnnxModel model = product->model.parse(test_device());
    for (int run = 0; run < 2; ++run) {
      Tensor y;
      const auto calls = calls_of(model, product->inputs, y);
      EXPECT_EQ(calls.at("DequantizeLinear"), 0);
      expect_near(y, product->expected());
    }
  }
}

TEST(OnnxQuantized, ProductsMultiplyTheCodesOfBothFactors) {
  Product product;
  product.model.graph().floats("scale", {kColumns}, {0.5, 2});
  product.model.graph().floats("x_scale", {}, {0.5});
  product.model.graph().start("x_zero", {}, ::onnx::TensorProto::UINT8)->add_int32_data(10);
  product.model.graph().node("QuantizeLinear", {"x", "x_scale", "x_zero"}, {"x_codes"});
  product.model.graph().node("DequantizeLinear", {"x_codes", "x_scale", "x_zero"}, {"x_again"});
  product.model.graph().node("DequantizeLinear", {"codes", "scale"}, {"w"});
  product.model.graph().node("MatMul", {"x_again", "w"}, {"y"});
  product.scale = [](int64_t, int64_t column) { return column == 0 ? 0.5 : 2; };
  const OnnxModel model = product.model.parse(test_device());
  Tensor y;
  calls_of(model, product.inputs, y);  // The weight is turned around once.
  const auto calls = calls_of(model, product.inputs, y);
  EXPECT_EQ(calls.at("DequantizeLinear"), 0);
  EXPECT_EQ(calls.at("MatMul"), 1);
  expect_near(y, product.expected());
}

TEST(OnnxQuantized, GemmTurnsScalesAndAdds) {
  Product product;
  product.model.graph().floats("scale", {}, {0.25}).floats("c", {kColumns}, {1, -1}).input("v");
  product.model.graph().node("DequantizeLinear", {"codes", "scale"}, {"w"});
  product.model.graph().node("Gemm", {"x", "w", "c"}, {"y"},
                             {attribute("alpha", 2.0F), attribute("beta", 3.0F)});
  product.model.graph().node("Gemm", {"v", "w"}, {"z"}, {attribute("transB", int64_t{1})});
  product.model.graph().output("z");
  product.scale = [](int64_t, int64_t) { return 0.5; };
  product.inputs["v"] = floats({1, 10}, {1, 2});
  Floats expected = product.expected();
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += i % 2 == 0 ? 3.0F : -3.0F;
  const OnnxModel model = product.model.parse(test_device());
  Tensor y;
  EXPECT_EQ(calls_of(model, product.inputs, y).at("DequantizeLinear"), 0);
  expect_near(y, expected);
  expect_near(model.run(product.inputs).at("z"), {-4.75, 10.75, 13.75, -288.25});
}

TEST(OnnxQuantized, AnOutputIsComputedByItsNode) {
  Product product;
  product.model.graph().floats("scale", {}, {0.5}).output("w");
  product.scale = [](int64_t, int64_t) { return 0.5; };
  product.finish("MatMul");
  Tensor y;
  const auto calls = calls_of(product.model.parse(test_device()), product.inputs, y);
  EXPECT_EQ(calls.at("DequantizeLinear"), 1);
  expect_near(y, product.expected());
}

// A form of a constant that is first made while work is recorded is no part of that work.
TEST(OnnxQuantized, ACaptureMayBeTheFirstToNeedAWeight) {
  Product product;
  product.model.graph().floats("scale", {}, {0.5});
  product.scale = [](int64_t, int64_t) { return 0.5; };
  product.finish("MatMul");
  const OnnxModel model = product.model.parse(test_device());
  const Stream stream(test_device());
  const StreamGuard guard(stream);
  Tensor recorded;
  Capture capture(test_device());
  recorded = model.run(product.inputs).at("y");
  CapturedGraph graph = capture.end();
  graph.launch();
  expect_near(recorded, product.expected());
  expect_near(model.run(product.inputs).at("y"), product.expected());
}

TEST(OnnxQuantized, TensorsThatAreGivenWithAModelAreItsConstants) {
  TestModel model;
  const std::vector<int64_t> shape = {2, -1};
  model.graph().input("x").input("w", ::onnx::TensorProto::FLOAT, &shape).output("y");
  model.graph().node("MatMul", {"x", "w"}, {"y"});
  const Tensor w = floats({1, 2, 3, 4}, {2, 2}), x = floats({1, 10}, {1, 2});
  const auto parse = [&](const TensorMap& constants) {
    return OnnxModel::parse(model.bytes(), "test.onnx", test_device(), true, constants);
  };
  const OnnxModel fixed = parse({{"w", w}});
  ASSERT_EQ(fixed.inputs().size(), 1);
  EXPECT_EQ(values(fixed.run({{"x", x}}).at("y")), (Floats{31, 42}));
  EXPECT_THROW(fixed.run({{"x", x}, {"w", w}}), Error);
  EXPECT_THROW(parse({{"v", w}}), Error);
  EXPECT_THROW(parse({{"w", floats({1, 2, 3}, {3, 1})}}), Error);
  EXPECT_THROW(parse({{"w", w.to(BP_F64)}}), Error);
}

}  // namespace
}  // namespace bp::onnx
