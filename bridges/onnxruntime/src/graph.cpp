#include "graph.hpp"

#include <algorithm>

namespace bpo {
namespace {

// The functions that give lists come in pairs: how many, and the list.
template <typename T, typename Owner>
std::vector<const T*> list(const Ort& ort, const Owner* owner,
                           OrtStatus* (*count_of)(const Owner*, size_t*),
                           OrtStatus* (*items_of)(const Owner*, const T**, size_t)) {
  size_t count = 0;
  ort.check(count_of(owner, &count), "a count of a graph");
  std::vector<const T*> items(count);
  if (count > 0) ort.check(items_of(owner, items.data(), count), "a list of a graph");
  return items;
}

std::vector<Edge> edges(const Ort& ort, const std::vector<const OrtValueInfo*>& infos) {
  std::vector<Edge> out;
  for (const OrtValueInfo* info : infos) {
    const char* name = "";
    if (info != nullptr) ort.check(ort.GetValueInfoName(info, &name), "GetValueInfoName");
    out.push_back({name, *name == 0 ? nullptr : info});
  }
  return out;
}

template <typename T>
T get(const Ort& ort, const OrtNode* node, OrtStatus* (*function)(const OrtNode*, T*)) {
  T value{};
  ort.check(function(node, &value), "a property of a node");
  return value;
}

std::string inner_graph_bytes(const Ort& ort, const OrtGraph* graph,
                              const std::vector<GraphNode>& nodes) {
  GraphParts parts;
  for (const GraphNode& node : nodes) parts.nodes.push_back(node.bytes());
  std::vector<std::string> names;
  for (const Edge& edge : edges(ort, list<OrtValueInfo>(ort, graph, ort.Graph_GetNumInitializers,
                                                        ort.Graph_GetInitializers))) {
    if (const auto constant = constant_of(ort, edge)) {
      parts.constants.push_back(tensor_bytes(*constant));
      names.push_back(edge.name);
    }
  }
  for (const Edge& edge :
       edges(ort, list<OrtValueInfo>(ort, graph, ort.Graph_GetNumInputs, ort.Graph_GetInputs))) {
    if (std::ranges::find(names, edge.name) == names.end()) parts.inputs.push_back(edge.name);
  }
  for (const Edge& edge :
       edges(ort, list<OrtValueInfo>(ort, graph, ort.Graph_GetNumOutputs, ort.Graph_GetOutputs))) {
    parts.outputs.push_back(edge.name);
  }
  return graph_bytes(parts);
}

void read_inner_graphs(const Ort& ort, GraphNode& node) {
  const size_t count = get<size_t>(ort, node.handle, ort.Node_GetNumSubgraphs);
  if (count == 0) return;
  node.has_graphs = true;
  std::vector<const OrtGraph*> graphs(count);
  std::vector<const char*> names(count);
  ort.check(ort.Node_GetSubgraphs(node.handle, graphs.data(), count, names.data()),
            "Node_GetSubgraphs");
  for (size_t i = 0; i < count; ++i) {
    std::vector<GraphNode> inner = read_nodes(ort, graphs[i]);
    node.attributes += graph_field(names[i], inner_graph_bytes(ort, graphs[i], inner));
    for (GraphNode& one : inner) {
      merge(node.opsets, one.opsets);
      node.inner.push_back(std::move(one));
    }
  }
}

GraphNode read_node(const Ort& ort, const OrtNode* handle) {
  GraphNode node;
  node.handle = handle;
  node.name = get<const char*>(ort, handle, ort.Node_GetName);
  node.op = get<const char*>(ort, handle, ort.Node_GetOperatorType);
  node.domain = get<const char*>(ort, handle, ort.Node_GetDomain);
  node.since = get<int>(ort, handle, ort.Node_GetSinceVersion);
  node.opsets[node.domain] = std::max<int64_t>(node.since, 1);
  node.inputs = inputs_of(ort, handle);
  node.outputs = outputs_of(ort, handle);
  node.implicit_inputs = edges(ort, list<OrtValueInfo>(ort, handle, ort.Node_GetNumImplicitInputs,
                                                       ort.Node_GetImplicitInputs));
  const char* provider = get<const char*>(ort, handle, ort.Node_GetEpName);
  node.is_assigned = provider != nullptr && *provider != 0;
  try {
    for (const OrtOpAttr* attribute :
         list<OrtOpAttr>(ort, handle, ort.Node_GetNumAttributes, ort.Node_GetAttributes)) {
      node.attributes += attribute_field(ort, attribute);
    }
    read_inner_graphs(ort, node);
  } catch (const bp::Error& e) {
    node.defect = e.what();
  }
  return node;
}

}  // namespace

std::string GraphNode::bytes() const {
  Message node;
  for (const Edge& input : inputs) node.add_bytes(1, input.name);
  for (const Edge& output : outputs) node.add_bytes(2, output.name);
  node.add_bytes(3, name);
  node.add_bytes(4, op);
  node.add_bytes(7, domain);
  return node.bytes() + attributes;
}

std::vector<GraphNode> read_nodes(const Ort& ort, const OrtGraph* graph) {
  std::vector<GraphNode> nodes;
  for (const OrtNode* handle :
       list<OrtNode>(ort, graph, ort.Graph_GetNumNodes, ort.Graph_GetNodes)) {
    nodes.push_back(read_node(ort, handle));
  }
  return nodes;
}

std::vector<Edge> inputs_of(const Ort& ort, const OrtNode* node) {
  return edges(ort, list<OrtValueInfo>(ort, node, ort.Node_GetNumInputs, ort.Node_GetInputs));
}

std::vector<Edge> outputs_of(const Ort& ort, const OrtNode* node) {
  return edges(ort, list<OrtValueInfo>(ort, node, ort.Node_GetNumOutputs, ort.Node_GetOutputs));
}

int32_t data_type_of(int32_t element_type) {
  switch (element_type) {
    case 24:
      return 25;  // UINT2
    case 25:
      return 26;  // INT2
    case 26:
      return 24;  // FLOAT8E8M0
    default:
      return element_type;
  }
}

namespace {

int32_t read_data_type(const Ort& ort, const OrtTensorTypeAndShapeInfo* info) {
  int32_t element_type = 0;
  ort.check(ort.GetTensorElementType(info, &element_type), "GetTensorElementType");
  return data_type_of(element_type);
}

}  // namespace

ValueType type_of(const Ort& ort, const Edge& edge) {
  ValueType type;
  const OrtTypeInfo* info = nullptr;
  ort.check(ort.GetValueInfoTypeInfo(edge.info, &info), "GetValueInfoTypeInfo");
  if (info == nullptr) return type;
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  ort.check(ort.CastTypeInfoToTensorInfo(info, &tensor), "CastTypeInfoToTensorInfo");
  if (tensor == nullptr) return type;
  type.is_tensor = true;
  type.element_type = read_data_type(ort, tensor);
  if (!ort.TensorTypeAndShape_HasShape(tensor)) return type;
  size_t rank = 0;
  ort.check(ort.GetDimensionsCount(tensor, &rank), "GetDimensionsCount");
  type.shape.emplace(rank);
  ort.check(ort.GetDimensions(tensor, type.shape->data(), rank), "GetDimensions");
  return type;
}

HostTensorView view_of(const Ort& ort, const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  ort.check(ort.GetTensorTypeAndShape(value, &info), "GetTensorTypeAndShape");
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owner(
      info, ort.ReleaseTensorTypeAndShapeInfo);
  HostTensorView view;
  size_t rank = 0;
  view.element_type = read_data_type(ort, info);
  ort.check(ort.GetDimensionsCount(info, &rank), "GetDimensionsCount");
  view.dims.resize(rank);
  ort.check(ort.GetDimensions(info, view.dims.data(), rank), "GetDimensions");
  ort.check(ort.GetTensorData(value, &view.data), "GetTensorData");
  return view;
}

std::optional<ConstantView> constant_of(const Ort& ort, const Edge& edge) {
  if (edge.info == nullptr) return {};
  bool is_constant = false;
  ort.check(ort.ValueInfo_IsConstantInitializer(edge.info, &is_constant),
            "ValueInfo_IsConstantInitializer");
  if (!is_constant) return {};
  const ValueType type = type_of(ort, edge);
  constexpr int32_t kString = 8;
  if (!type.is_tensor || type.element_type == kString) {
    throw OrtError(BP_UNSUPPORTED, "the constant '" + edge.name + "' is no tensor of numbers");
  }
  const OrtValue* value = nullptr;
  ort.check(ort.ValueInfo_GetInitializerValue(edge.info, &value), "ValueInfo_GetInitializerValue");
  HostTensorView view = view_of(ort, value);
  size_t size = 0;
  ort.check(ort.GetTensorSizeInBytes(value, &size), "GetTensorSizeInBytes");
  return ConstantView{edge.name,
                      view.element_type,
                      std::move(view.dims),
                      {static_cast<const char*>(view.data), size}};
}

}  // namespace bpo
