// A model as the importer keeps it: graphs of nodes, without protobuf.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/onnx.hpp"
#include "runtime/io/onnx/value.hpp"

namespace bp::onnx {

struct Graph;
struct OpRow;

struct Attribute {
  enum class Kind { kFloat, kInt, kString, kTensor, kGraph, kFloats, kInts, kStrings, kOther };

  std::string name;
  Kind kind = Kind::kOther;
  double number = 0;
  int64_t integer = 0;
  std::string text;
  std::shared_ptr<const HostTensor> tensor;
  std::shared_ptr<Graph> graph;
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
  std::string defect;  // Of kOther: what it holds, such as "a sparse tensor".
};

// Returns "a float", "an integer" and so on.
const char* to_string(Attribute::Kind kind);

struct Node {
  OnnxNodeInfo info;
  std::vector<std::string> inputs;  // An empty name stands for an input that is not given.
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
  const OpRow* row = nullptr;  // NULL if the node cannot be run.
  bool is_folded = false;      // Its result is one of the constants of the graph.
  std::string place;           // "node 3 'conv1' (Conv of the default domain, opset 13)"

  const Attribute* find(std::string_view name) const;
};

// A constant of a graph, on the host and on the device of the model.
struct Constant {
  std::shared_ptr<const HostTensor>
      host;  // NULL for a large one, whose elements are on the device.
  Tensor tensor;
  std::shared_ptr<ConstantForms> forms = std::make_shared<ConstantForms>();
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;  // In an order in which they can run.
  std::vector<OnnxValueInfo> inputs, outputs;
  std::map<std::string, Constant> constants;
};

// What a model imports: the version of each domain. The default domain is "".
using Opsets = std::map<std::string, int64_t>;

struct LoadedModel {
  Device device;
  std::string name;  // As messages call the model.
  Opsets opsets;
  Graph graph;
  std::vector<OnnxNodeInfo> nodes;
};

// The newest opset of the default domain whose operators the importer knows.
inline constexpr int64_t kNewestOpset = 28;

}  // namespace bp::onnx
