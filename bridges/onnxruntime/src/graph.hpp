// A graph of ONNX Runtime, read into plain data. What is read refers to the graph, and lives no
// longer than the call of ONNX Runtime that gave it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model_bytes.hpp"
#include "ort.hpp"

namespace bpo {

// Returns the number of TensorProto.DataType of one of ONNXTensorElementDataType. They are the same
// but for the three newest.
int32_t data_type_of(int32_t element_type);

// What the model says of a value.
struct ValueType {
  bool is_tensor = false;
  int32_t element_type = 0;                   // A number of TensorProto.DataType; 0: not known.
  std::optional<std::vector<int64_t>> shape;  // Empty: not known. -1: the extent is not known.
};

// An input or an output of a node or a graph.
struct Edge {
  std::string name;                    // Empty if it is not given.
  const OrtValueInfo* info = nullptr;  // NULL if it is not given.
};

struct GraphNode {
  const OrtNode* handle = nullptr;
  std::string name, op, domain;
  int64_t since = 0;  // The opset in which this form of the operator came.
  std::vector<Edge> inputs, outputs;
  std::vector<Edge> implicit_inputs;  // What the graphs in attributes take from outside.
  std::string attributes;             // Fields of NodeProto.
  std::vector<GraphNode> inner;       // The nodes of the graphs in attributes.
  bool has_graphs = false;
  bool is_assigned = false;  // A provider has taken the node already.
  Opsets opsets;             // What the node and its graphs need.
  std::string defect;        // Why the attributes could not be read; "" if they were.

  // Returns the node as a NodeProto.
  std::string bytes() const;
};

// A graph's nodes, in an order in which they can run.
std::vector<GraphNode> read_nodes(const Ort& ort, const OrtGraph* graph);

std::vector<Edge> inputs_of(const Ort& ort, const OrtNode* node);
std::vector<Edge> outputs_of(const Ort& ort, const OrtNode* node);

ValueType type_of(const Ort& ort, const Edge& edge);

// Returns the elements of a constant of the model, borrowed; nothing if the value is no constant.
// Throws OrtError for a constant that is no tensor of numbers.
std::optional<ConstantView> constant_of(const Ort& ort, const Edge& edge);

// Returns an attribute as a field of NodeProto. Graphs are left to the caller: then it is "".
std::string attribute_field(const Ort& ort, const OrtOpAttr* attribute);

// Returns the graph `name` of a node as a field of NodeProto.
std::string graph_field(const char* name, const std::string& graph);

// What is known of a value at hand.
struct HostTensorView {
  int32_t element_type = 0;
  std::vector<int64_t> dims;
  const void* data = nullptr;
};
HostTensorView view_of(const Ort& ort, const OrtValue* value);

}  // namespace bpo
