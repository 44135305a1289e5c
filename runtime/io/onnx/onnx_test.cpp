#include "backplane/runtime/onnx.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backplane/runtime/ops.hpp"
#include "runtime/io/onnx/test_model.hpp"
#include "runtime/test_device.hpp"

namespace bp::onnx {
namespace {

using Floats = std::vector<float>;

Tensor floats(const Floats& values, IntList shape) {
  return from_host(values, shape, test_device());
}

// y = relu(x w + b)
TestModel layer() {
  TestModel model;
  static const std::vector<int64_t> shape{-1, 2};
  model.graph()
      .input("x", ::onnx::TensorProto::FLOAT, &shape)
      .floats("w", {2, 2}, {1, 2, 3, 4})
      .floats("b", {2}, {-4, 1})
      .node("MatMul", {"x", "w"}, {"product"})
      .node("Add", {"product", "b"}, {"sum"})
      .node("Relu", {"sum"}, {"y"})
      .output("y");
  return model;
}

TEST(Onnx, RunsAModelOnNamedTensors) {
  const OnnxModel model = layer().parse(test_device());
  const TensorMap outputs = model.run({{"x", floats({1, 1, 0, 0}, {2, 2})}});
  EXPECT_EQ(outputs.at("y").to_vector<float>(), (Floats{0, 7, 0, 1}));
}

TEST(Onnx, TellsItsInputsOutputsAndNodes) {
  const OnnxModel model = layer().parse(test_device());
  ASSERT_EQ(model.inputs().size(), 1u);
  EXPECT_EQ(model.inputs()[0].name, "x");
  EXPECT_EQ(model.inputs()[0].dtype, bp_dtype{BP_F32});
  EXPECT_EQ(*model.inputs()[0].shape, (std::vector<int64_t>{-1, 2}));
  EXPECT_TRUE(model.inputs()[0].is_required);
  ASSERT_EQ(model.outputs().size(), 1u);
  EXPECT_FALSE(model.outputs()[0].shape.has_value());
  ASSERT_EQ(model.nodes().size(), 3u);
  EXPECT_EQ(model.nodes()[0].op_type, "MatMul");
  EXPECT_EQ(model.nodes()[0].opset, 17);
  EXPECT_TRUE(model.nodes()[0].is_supported);
}

TEST(Onnx, RunsNodesInAnOrderThatTheirInputsAllow) {
  TestModel model;
  model.graph()
      .input("x")
      .node("Neg", {"b"}, {"y"})
      .node("Abs", {"a"}, {"b"})
      .node("Neg", {"x"}, {"a"})
      .output("y");
  const TensorMap outputs = model.parse(test_device()).run({{"x", floats({-1, 2}, {2})}});
  EXPECT_EQ(outputs.at("y").to_vector<float>(), (Floats{-1, -2}));
}

TEST(Onnx, RefusesInputsThatAreMissingUnknownOrOfAnotherKind) {
  const OnnxModel model = layer().parse(test_device());
  const auto failure = [&](const TensorMap& inputs) {
    return message_of([&] { model.run(inputs); });
  };
  EXPECT_EQ(failure({}), "test.onnx: input 'x' is not given; it is f32 (-1, 2)");
  const Tensor x = floats({1, 2}, {1, 2});
  EXPECT_EQ(failure({{"x", x}, {"z", x}}),
            "test.onnx: the model has no input 'z'; its inputs are 'x'");
  EXPECT_EQ(failure({{"x", x.reshape({2, 1})}}),
            "test.onnx: input 'x' is f32 (2, 1); allowed: f32 (-1, 2) (-1: any extent)");
  EXPECT_EQ(failure({{"x", x.to(BP_F64)}}),
            "test.onnx: input 'x' is f64 (1, 2); allowed: f32 (-1, 2) (-1: any extent)");
  EXPECT_EQ(failure({{"x", Tensor()}}), "test.onnx: input 'x' is empty");
}

TEST(Onnx, TakesAnInputInPlaceOfAnInitialiserOfItsName) {
  TestModel model;
  model.graph().input("x").floats("x", {1}, {5}).node("Neg", {"x"}, {"y"}).output("y");
  const OnnxModel loaded = model.parse(test_device());
  EXPECT_FALSE(loaded.inputs()[0].is_required);
  EXPECT_EQ(loaded.run({}).at("y").to_vector<float>(), Floats{-5});
  EXPECT_EQ(loaded.run({{"x", floats({2}, {1})}}).at("y").to_vector<float>(), Floats{-2});
}

TEST(Onnx, NamesTheNodeTheOperatorAndTheOpsetOfAFailure) {
  TestModel model;
  model.graph().input("x").node("Reshape", {"x", "s"}, {"y"}).ints("s", {1}, {3}).output("y");
  const OnnxModel loaded = model.parse(test_device());
  const std::string message = message_of([&] { loaded.run({{"x", floats({1, 2}, {2})}}); });
  EXPECT_EQ(message.find("test.onnx: node 0 (Reshape of the default domain, opset 17): "), 0u)
      << message;
}

TEST(Onnx, SaysWhichOperatorIsNotSupportedAndWhy) {
  const auto failure = [](const std::string& op, int64_t opset) {
    TestModel model(opset);
    model.graph().input("x").node(op, {"x"}, {"y"}).output("y");
    return message_of([&] { model.parse(test_device()); });
  };
  EXPECT_EQ(failure("Frobnicate", 17),
            "test.onnx: node 0 (Frobnicate of the default domain, opset 17): there is no such "
            "operator in the importer");
  EXPECT_EQ(failure("Mish", 17),
            "test.onnx: node 0 (Mish of the default domain, opset 17): the operator is there from "
            "opset 18 on, not in 17");
  EXPECT_EQ(failure("SequenceLength", 17),
            "test.onnx: node 0 (SequenceLength of the default domain, opset 17): sequences of "
            "tensors are not supported");
  EXPECT_NE(failure("Neg", 99).find("the model has opset 99 of the default domain; allowed: 1 to"),
            std::string::npos);
}

TEST(Onnx, RefusesAnAttributeThatItDoesNotRead) {
  TestModel model;
  model.graph().input("x").node("Neg", {"x"}, {"y"}, {attribute("mode", "fast")}).output("y");
  EXPECT_EQ(message_of([&] { model.parse(test_device()); }),
            "test.onnx: node 0 (Neg of the default domain, opset 17): the attribute 'mode' is not "
            "supported");
  const OnnxModel loaded = model.parse(test_device(), false);
  EXPECT_FALSE(loaded.nodes()[0].is_supported);
  EXPECT_THROW(loaded.run({{"x", floats({1}, {1})}}), Error);
}

TEST(Onnx, TellsAnObserverWhatEachNodeDid) {
  const OnnxModel model = layer().parse(test_device());
  std::vector<std::string> ops;
  uint64_t calls = 0;
  const auto observe = [&](const OnnxNodeRun& run) {
    ops.push_back(run.node.op_type);
    calls += run.native_count + run.decomposed_count + run.host_fallback_count;
    EXPECT_GE(run.time_ns, 0);
    EXPECT_FALSE(run.is_random);
  };
  model.run({{"x", floats({1, 1}, {1, 2})}}, observe);
  EXPECT_EQ(ops, (std::vector<std::string>{"MatMul", "Add", "Relu"}));
  EXPECT_GE(calls, 3u);
}

TEST(Onnx, RunsOnSeveralThreadsAtOnce) {
  const OnnxModel model = layer().parse(test_device());
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto number = static_cast<float>(i);
      for (int round = 0; round < 20; ++round) {
        const TensorMap outputs = model.run({{"x", floats({number, number}, {1, 2})}});
        const Floats expected{std::max(0.0F, 4 * number - 4), 6 * number + 1};
        if (outputs.at("y").to_vector<float>() == expected) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

// ---- Subgraphs ---------------------------------------------------------------------------------

::onnx::GraphProto branch(const std::string& op) {
  ::onnx::GraphProto graph;
  GraphBuilder(&graph).node(op, {"x"}, {"result"}).output("result");
  return graph;
}

TEST(Onnx, RunsTheBranchThatTheConditionChooses) {
  TestModel model;
  model.graph()
      .input("given")
      .input("c", ::onnx::TensorProto::BOOL)
      .node("Identity", {"given"}, {"x"})  // Only the branches need it.
      .node("If", {"c"}, {"y"},
            {attribute("then_branch", branch("Neg")), attribute("else_branch", branch("Identity"))})
      .output("y");
  const OnnxModel loaded = model.parse(test_device());
  EXPECT_EQ(loaded.nodes().size(), 4u) << "the If and a node in each branch";
  const auto run = [&](bool condition) {
    return loaded
        .run({{"given", floats({-3}, {1})}, {"c", bp::full({}, condition, BP_BOOL, test_device())}})
        .at("y")
        .to_vector<float>();
  };
  EXPECT_EQ(run(true), Floats{3});
  EXPECT_EQ(run(false), Floats{-3});
}

TEST(Onnx, LoopsAsOftenAsItIsTold) {
  ::onnx::GraphProto body;
  GraphBuilder(&body)
      .input("i", ::onnx::TensorProto::INT64)
      .input("go_on", ::onnx::TensorProto::BOOL)
      .input("sum")
      .node("Identity", {"go_on"}, {"still"})
      .node("Add", {"sum", "x"}, {"next"})
      .output("still", ::onnx::TensorProto::BOOL)
      .output("next")
      .output("next");
  body.mutable_output(2)->set_name("copy");
  GraphBuilder(&body).node("Identity", {"next"}, {"copy"});
  TestModel model;
  model.graph()
      .input("x")
      .ints("rounds", {}, {3})
      .floats("zero", {1}, {0})
      .node("Loop", {"rounds", "", "zero"}, {"last", "all"}, {attribute("body", body)})
      .output("last")
      .output("all");
  const TensorMap outputs = model.parse(test_device()).run({{"x", floats({2}, {1})}});
  EXPECT_EQ(outputs.at("last").to_vector<float>(), Floats{6});
  EXPECT_EQ(outputs.at("all").to_vector<float>(), (Floats{2, 4, 6}));
  EXPECT_EQ(outputs.at("all").shape(), IntList({3, 1}));
}

TEST(Onnx, ScansAnInputFromItsEnd) {
  ::onnx::GraphProto body;
  GraphBuilder(&body)
      .input("sum")
      .input("item")
      .node("Add", {"sum", "item"}, {"next"})
      .node("Identity", {"next"}, {"copy"})
      .output("next")
      .output("copy");
  TestModel model;
  model.graph()
      .input("x")
      .floats("zero", {}, {0})
      .node("Scan", {"zero", "x"}, {"last", "all"},
            {attribute("body", body), attribute("num_scan_inputs", int64_t{1}),
             attribute("scan_input_directions", std::vector<int64_t>{1})})
      .output("last")
      .output("all");
  const TensorMap outputs = model.parse(test_device()).run({{"x", floats({1, 2, 4}, {3})}});
  EXPECT_EQ(outputs.at("last").item<float>(), 7);
  EXPECT_EQ(outputs.at("all").to_vector<float>(), (Floats{4, 6, 7}));
}

TEST(Onnx, RunsConstantsOnlyOnce) {
  ::onnx::AttributeProto value;
  value.set_name("value_floats");
  value.set_type(::onnx::AttributeProto::FLOATS);
  value.add_floats(3);
  TestModel model;
  model.graph().node("Constant", {}, {"c"}, {value}).node("Neg", {"c"}, {"y"}).output("y");
  const OnnxModel loaded = model.parse(test_device());
  EXPECT_EQ(loaded.nodes().size(), 2u);
  size_t runs = 0;
  const TensorMap outputs = loaded.run({}, [&](const OnnxNodeRun&) { ++runs; });
  EXPECT_EQ(outputs.at("y").to_vector<float>(), Floats{-3});
  EXPECT_EQ(runs, 1u);

  model.proto.mutable_graph()->mutable_node(0)->mutable_attribute(0)->set_name("value_string");
  EXPECT_NE(message_of([&] { model.parse(test_device()); }).find("(Constant of the default domain"),
            std::string::npos);
}

TEST(Onnx, GivesTheSameRandomNumbersForTheSameSeed) {
  TestModel model;
  model.graph()
      .node("RandomUniform", {}, {"y"},
            {attribute("shape", std::vector<int64_t>{8}), attribute("seed", 3.0F)})
      .node("RandomNormal", {}, {"z"}, {attribute("shape", std::vector<int64_t>{8})})
      .output("y")
      .output("z");
  const OnnxModel loaded = model.parse(test_device());
  size_t random = 0;
  const TensorMap first = loaded.run({}, [&](const OnnxNodeRun& run) { random += run.is_random; });
  const TensorMap second = loaded.run({});
  EXPECT_EQ(random, 2u);
  EXPECT_EQ(first.at("y").to_vector<float>(), second.at("y").to_vector<float>());
  EXPECT_NE(first.at("z").to_vector<float>(), second.at("z").to_vector<float>());
}

}  // namespace
}  // namespace bp::onnx
