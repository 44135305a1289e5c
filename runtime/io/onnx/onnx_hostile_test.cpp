// Files that somebody made to do harm, or that something happened to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "runtime/io/onnx/test_model.hpp"
#include "runtime/test_device.hpp"

namespace bp::onnx {
namespace {

namespace fs = std::filesystem;

class OnnxHostile : public testing::Test {
 protected:
  OnnxHostile() : root_(fs::temp_directory_path() / ("onnx_test." + std::to_string(getpid()))) {
    fs::create_directories(folder());
  }
  ~OnnxHostile() override { fs::remove_all(root_); }

  fs::path folder() const { return root_ / "model"; }
  fs::path root() const { return root_; }

  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string write_model(const TestModel& model) const {
    const fs::path path = folder() / "model.onnx";
    write(path, model.bytes());
    return path;
  }
  static std::string failure(const TestModel& model) {
    return message_of([&] { model.parse(test_device()); });
  }
  static void expect(const TestModel& model, const std::string& part) {
    const std::string message = failure(model);
    EXPECT_NE(message.find(part), std::string::npos) << message << "\n  expected: " << part;
    EXPECT_EQ(message.find("test.onnx: "), 0u) << message;
  }

 private:
  fs::path root_;
};

TestModel small() {
  TestModel model;
  static const std::vector<int64_t> shape{2};
  model.graph()
      .input("x", ::onnx::TensorProto::FLOAT, &shape)
      .floats("w", {2}, {1, 2})
      .ints("s", {2}, {2, 1})
      .node("Add", {"x", "w"}, {"sum"})
      .node("Reshape", {"sum", "s"}, {"y"})
      .output("y");
  return model;
}

TEST_F(OnnxHostile, LoadsOrRefusesAModelThatIsCutAtAnyLength) {
  const std::string whole = small().bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message =
        message_of([&] { OnnxModel::parse(whole.substr(0, size), "cut.onnx", test_device()); });
    EXPECT_TRUE(message.starts_with("cut.onnx: ") || message == "(nothing was thrown)") << message;
  }
}

TEST_F(OnnxHostile, RunsOrRefusesAModelWithWrongBytes) {
  const std::string whole = small().bytes();
  std::mt19937 random(1);
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (int i = 0; i < 1 + round % 3; ++i) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    try {
      const OnnxModel model = OnnxModel::parse(changed, "wrong.onnx", test_device());
      TensorMap inputs;
      for (const OnnxValueInfo& info : model.inputs()) {
        inputs[info.name] = zeros({2}, BP_F32, test_device());
      }
      model.run(inputs);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find("wrong.onnx: "), 0u) << error.what();
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST_F(OnnxHostile, RefusesWhatIsNoModel) {
  EXPECT_NE(message_of([] {
              OnnxModel::parse("no model", "a", test_device());
            }).find("a: it cannot be read as an ONNX model"),
            std::string::npos);
  EXPECT_NE(message_of([] { OnnxModel::parse("", "a", test_device()); }).find("a: ir_version is 0"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              OnnxModel::load("/nonexistent.onnx", test_device());
            }).find("/nonexistent.onnx: No such file or directory"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              OnnxModel::load(folder(), test_device());
            }).find("it is a folder, not a regular file"),
            std::string::npos);
}

TEST_F(OnnxHostile, RefusesAModelWithoutOpsetOrGraph) {
  TestModel model = small();
  model.proto.clear_opset_import();
  expect(model, "the model has no opset_import");
  model = small();
  model.proto.clear_graph();
  expect(model, "the model has no graph");
  model = small();
  model.proto.add_opset_import()->set_domain("ai.onnx");
  expect(model, "opset_import has the domain '' twice");
  model = small();
  model.proto.mutable_graph()->mutable_node(0)->set_domain("com.example");
  expect(model, "node 0 (Add of the domain 'com.example', opset 0): opset_import does not have");
  model = small();
  model.proto.add_functions()->set_name("twice");
  expect(model, "the model has functions of its own, such as 'twice'");
}

TEST_F(OnnxHostile, RefusesGraphsThatCannotRun) {
  TestModel cycle;
  cycle.graph().input("x").node("Add", {"x", "b"}, {"a"}).node("Neg", {"a"}, {"b"}).output("b");
  expect(cycle, "needs its own result: the graph has a cycle");
  TestModel missing;
  missing.graph().input("x").node("Add", {"x", "w"}, {"y"}).output("y");
  expect(missing, "node 0 (Add of the default domain, opset 17) needs 'w', which no node makes");
  TestModel output;
  output.graph().input("x").node("Neg", {"x"}, {"y"}).output("z");
  expect(output, "no node makes the output 'z'");
  TestModel twice;
  twice.graph().input("x").node("Neg", {"x"}, {"y"}).node("Abs", {"x"}, {"y"}).output("y");
  expect(twice, "node 1 (Abs of the default domain, opset 17) makes 'y', which node 0");
  TestModel overwritten;
  overwritten.graph().input("x").node("Neg", {"x"}, {"x"}).output("x");
  expect(overwritten, "makes 'x', which is an input or an initialiser already");
  TestModel inputs;
  inputs.graph().input("x").input("x").output("x");
  expect(inputs, "the graph has two inputs 'x'");
}

TEST_F(OnnxHostile, RefusesInitialisersThatDoNotHoldWhatTheyClaim) {
  const auto with = [](const std::vector<int64_t>& dims, int32_t type, const std::string& raw) {
    TestModel model = small();
    model.graph().start("big", dims, type)->set_raw_data(raw);
    return model;
  };
  const auto f32 = ::onnx::TensorProto::FLOAT;
  expect(with({1 << 28}, f32, std::string(10, 'x')),
         "initialiser 'big': its dims (268435456,) of f32 need 1073741824 bytes, but raw_data has "
         "10");
  expect(with({1LL << 32, 1LL << 32}, f32, "x"), "its dims are (4294967296, 4294967296); allowed:");
  expect(with({INT64_MAX, 2}, f32, "x"), "its dims are");
  expect(with({-1}, f32, "x"), "its dims are (-1,)");
  expect(with(std::vector<int64_t>(9, 1), f32, "1234"), "allowed: up to 8 extents");
  expect(with({0, 1LL << 40, 1LL << 40}, f32, ""), "its dims are");
  expect(with({1}, 99, "1"), "its data_type is 99");
  expect(with({1}, ::onnx::TensorProto::STRING, "1"), "its data_type is STRING");

  TestModel fields = with({1}, f32, "1234");
  fields.proto.mutable_graph()->mutable_initializer(2)->add_float_data(1);
  expect(fields, "it has raw_data and another field of elements");
  TestModel typed = small();
  typed.graph().start("t", {3}, f32)->add_float_data(1);
  expect(typed, "initialiser 't': its dims (3,) have 3 elements, but float_data has 1");
  TestModel wrong = small();
  wrong.graph().start("t", {1}, f32)->add_int64_data(1);
  expect(wrong, "float_data has 0");
  TestModel twice = small();
  twice.graph().floats("w", {1}, {1});
  expect(twice, "initialiser 'w': it is there twice");
  TestModel sparse = small();
  sparse.proto.mutable_graph()->add_sparse_initializer();
  expect(sparse, "sparse initialisers");
}

TEST_F(OnnxHostile, RefusesInputsThatAreNoTensors) {
  TestModel model = small();
  model.proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_sequence_type();
  expect(model, "'x' is a sequence; inputs and outputs are dense tensors alone");
  model = small();
  model.proto.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->set_elem_type(::onnx::TensorProto::STRING);
  expect(model, "'x' has the element type 8 (STRING)");
}

TEST_F(OnnxHostile, RefusesSubgraphsThatNestWithoutEnd) {
  TestModel model;
  ::onnx::GraphProto graph;
  GraphBuilder(&graph).node("Neg", {"x"}, {"y"}).output("y");
  for (int depth = 0; depth < 200; ++depth) {
    ::onnx::GraphProto outer;
    GraphBuilder(&outer).node("If", {"c"}, {"y"}, {attribute("then_branch", graph)}).output("y");
    graph.Swap(&outer);
  }
  *model.proto.mutable_graph() = graph;
  model.graph().input("x").input("c", ::onnx::TensorProto::BOOL);
  expect(model, "nests deeper than 100 levels");
}

TEST_F(OnnxHostile, RefusesWorkOnTheHostWithoutEnd) {
  TestModel model;
  model.graph()
      .input("x")
      .ints("pads", {2}, {int64_t{1} << 60, 0})
      .node("Pad", {"x", "pads"}, {"y"}, {attribute("mode", "edge")})
      .output("y");
  const OnnxModel loaded = model.parse(test_device());
  EXPECT_NE(message_of([&] {
              loaded.run({{"x", zeros({2}, BP_F32, test_device())}});
            }).find("the padding is 1152921504606846976; allowed: 0 to"),
            std::string::npos);
}

// ---- External data -----------------------------------------------------------------------------

TestModel with_external(const std::vector<std::pair<std::string, std::string>>& entries) {
  TestModel model = small();
  auto* const proto = model.graph().start("e", {2}, ::onnx::TensorProto::FLOAT);
  proto->set_data_location(::onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : entries) {
    auto* const entry = proto->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  model.graph().output("e");
  return model;
}

TEST_F(OnnxHostile, ReadsExternalDataInTheFolderOfTheModel) {
  const float numbers[] = {0, 3, 4};
  write(folder() / "data.bin", {reinterpret_cast<const char*>(numbers), sizeof(numbers)});
  const std::string path =
      write_model(with_external({{"location", "data.bin"}, {"offset", "4"}, {"length", "8"}}));
  const OnnxModel model = OnnxModel::load(path, test_device());
  const TensorMap outputs = model.run({{"x", zeros({2}, BP_F32, test_device())}});
  EXPECT_EQ(outputs.at("e").to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_NE(failure(with_external({{"location", "data.bin"}})).find("only a model that is loaded"),
            std::string::npos);
}

TEST_F(OnnxHostile, RefusesExternalDataOutsideOfTheFolder) {
  write(root() / "secret.bin", std::string(8, 's'));
  write(folder() / "data.bin", std::string(8, 'd'));
  fs::create_symlink(root() / "secret.bin", folder() / "link.bin");
  fs::create_directory_symlink(root(), folder() / "up");
  const auto expect_refusal = [&](const std::vector<std::pair<std::string, std::string>>& entries,
                                  const std::string& part) {
    const std::string path = write_model(with_external(entries));
    const std::string message = message_of([&] { OnnxModel::load(path, test_device()); });
    EXPECT_NE(message.find(part), std::string::npos) << message << "\n  expected: " << part;
    EXPECT_EQ(message.find(path + ": initialiser 'e': "), 0u) << message;
  };
  expect_refusal({{"location", (root() / "secret.bin").string()}}, "is an absolute path");
  expect_refusal({{"location", "../secret.bin"}}, "has '..'");
  expect_refusal({{"location", "sub/../../secret.bin"}}, "has '..'");
  expect_refusal({{"location", "link.bin"}}, "leads out of the folder of the model");
  expect_refusal({{"location", "up/secret.bin"}}, "leads out of the folder of the model");
  expect_refusal({{"location", ""}}, "has no location");
  expect_refusal({}, "has no location");
  expect_refusal({{"location", "none.bin"}}, "cannot be read: No such file or directory");
  expect_refusal({{"location", "."}}, "it is a folder");
  expect_refusal({{"location", "data.bin"}, {"offset", "4"}}, "but the file has 8");
  expect_refusal({{"location", "data.bin"}, {"offset", "9223372036854775807"}},
                 "but the file has 8");
  expect_refusal({{"location", "data.bin"}, {"length", "9"}}, "has the length 9, but");
  expect_refusal({{"location", "data.bin"}, {"offset", "-1"}}, "has the offset '-1'; allowed");
  expect_refusal({{"location", "data.bin"}, {"offset", "18446744073709551616"}}, "has the offset");
}

}  // namespace
}  // namespace bp::onnx
