#include "runtime/io/onnx/read_model.hpp"

#include <algorithm>

#include "runtime/io/onnx/check_graph.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TypeProto;
using ::onnx::ValueInfoProto;

constexpr int64_t kOldestIr = 3, kNewestIr = 14;
constexpr size_t kLargestHostCopy = 65536;  // Bytes of a constant that the host keeps.

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(BP_INVALID_ARGUMENT, what + ": " + why);
}

// What is the same while one model is read. The messages of tensors are emptied once they are read,
// so that the elements of a large model are in memory once.
struct Reader {
  const DataFolder& folder;
  Device device;
  const Opsets& opsets;

  Graph read_graph(GraphProto& proto, const std::string& name) const;
  Node read_node(NodeProto& proto, size_t number, const std::string& name) const;
  Attribute read_attribute(AttributeProto& proto, const std::string& what) const;
};

// "ai.onnx" is another name of the default domain.
std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

Opsets read_opsets(const ::onnx::ModelProto& proto, const std::string& name) {
  Opsets opsets;
  for (const auto& entry : proto.opset_import()) {
    const std::string domain = domain_of(entry.domain());
    if (!opsets.emplace(domain, entry.version()).second) {
      refuse(name, "opset_import has the domain '" + domain + "' twice");
    }
    if (entry.version() < 1) {
      refuse(name, "opset_import has version " + std::to_string(entry.version()) +
                       " of the domain '" + domain + "'; allowed: 1 and above");
    }
  }
  if (opsets.empty()) refuse(name, "the model has no opset_import (is it cut, or no model?)");
  const auto found = opsets.find("");
  if (found != opsets.end() && found->second > kNewestOpset) {
    throw Error(BP_UNSUPPORTED, name + ": the model has opset " + std::to_string(found->second) +
                                    " of the default domain; allowed: 1 to " +
                                    std::to_string(kNewestOpset) + "; convert it to one of them");
  }
  return opsets;
}

void read_shape(const ::onnx::TensorShapeProto& proto, OnnxValueInfo& out) {
  std::vector<int64_t> shape;
  for (const auto& dim : proto.dim()) {
    shape.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
  }
  out.shape = std::move(shape);
}

const char* kind_of(const TypeProto& type) {
  switch (type.value_case()) {
    case TypeProto::kSequenceType:
      return "a sequence";
    case TypeProto::kMapType:
      return "a map";
    case TypeProto::kOptionalType:
      return "an optional";
    case TypeProto::kSparseTensorType:
      return "a sparse tensor";
    default:
      return nullptr;
  }
}

OnnxValueInfo read_value_info(const ValueInfoProto& proto, const std::string& name) {
  OnnxValueInfo info{proto.name()};
  if (!proto.has_type()) return info;
  if (const char* const kind = kind_of(proto.type())) {
    throw Error(BP_UNSUPPORTED, name + ": '" + proto.name() + "' is " + kind +
                                    "; inputs and outputs are dense tensors alone");
  }
  if (!proto.type().has_tensor_type()) return info;
  const auto& tensor = proto.type().tensor_type();
  info.dtype = onnx_dtype(tensor.elem_type());
  if (info.dtype == 0 && tensor.elem_type() != 0) {
    throw Error(BP_UNSUPPORTED, name + ": '" + proto.name() + "' has the element type " +
                                    std::to_string(tensor.elem_type()) +
                                    (tensor.elem_type() == 8 ? " (STRING)" : "") +
                                    ", for which there is no dtype");
  }
  if (tensor.has_shape()) read_shape(tensor.shape(), info);
  return info;
}

const char* unreadable_kind(const AttributeProto& proto) {
  switch (proto.type()) {
    case AttributeProto::SPARSE_TENSOR:
      return "a sparse tensor";
    case AttributeProto::TYPE_PROTO:
      return "a type";
    case AttributeProto::TENSORS:
      return "a list of tensors";
    case AttributeProto::GRAPHS:
      return "a list of graphs";
    case AttributeProto::SPARSE_TENSORS:
      return "a list of sparse tensors";
    case AttributeProto::TYPE_PROTOS:
      return "a list of types";
    default:
      return "a value of an unknown type";
  }
}

// Files of IR version 1 have no types of attributes: the field that is filled tells it.
AttributeProto::AttributeType type_of(const AttributeProto& proto) {
  if (proto.type() != AttributeProto::UNDEFINED) return proto.type();
  if (proto.has_f()) return AttributeProto::FLOAT;
  if (proto.has_i()) return AttributeProto::INT;
  if (proto.has_s()) return AttributeProto::STRING;
  if (proto.has_t()) return AttributeProto::TENSOR;
  if (proto.has_g()) return AttributeProto::GRAPH;
  if (proto.floats_size() > 0) return AttributeProto::FLOATS;
  if (proto.strings_size() > 0) return AttributeProto::STRINGS;
  return AttributeProto::INTS;
}

// Fills what is a list. Returns false for another attribute.
bool read_list(const AttributeProto& proto, Attribute& out) {
  using Kind = Attribute::Kind;
  switch (type_of(proto)) {
    case AttributeProto::FLOATS:
      out.kind = Kind::kFloats;
      out.numbers.assign(proto.floats().begin(), proto.floats().end());
      return true;
    case AttributeProto::INTS:
      out.kind = Kind::kInts;
      out.integers.assign(proto.ints().begin(), proto.ints().end());
      return true;
    case AttributeProto::STRINGS:
      out.kind = Kind::kStrings;
      out.texts.assign(proto.strings().begin(), proto.strings().end());
      return true;
    default:
      return false;
  }
}

Attribute Reader::read_attribute(AttributeProto& proto, const std::string& what) const {
  using Kind = Attribute::Kind;
  Attribute out;
  out.name = proto.name();
  const std::string shown = what + ": attribute '" + out.name + "'";
  if (!proto.ref_attr_name().empty()) {
    refuse(shown, "it refers to the attribute of a function, but is in no function");
  }
  if (read_list(proto, out)) return out;
  switch (type_of(proto)) {
    case AttributeProto::FLOAT:
      out.kind = Kind::kFloat;
      out.number = proto.f();
      break;
    case AttributeProto::INT:
      out.kind = Kind::kInt;
      out.integer = proto.i();
      break;
    case AttributeProto::STRING:
      out.kind = Kind::kString;
      out.text = proto.s();
      break;
    case AttributeProto::TENSOR:
      if (proto.t().data_type() == ::onnx::TensorProto::STRING) {
        out.defect = "a tensor of strings";
        break;
      }
      out.kind = Kind::kTensor;
      out.tensor = std::make_shared<HostTensor>(read_tensor(proto.t(), folder, shown));
      break;
    case AttributeProto::GRAPH:
      out.kind = Kind::kGraph;
      out.graph = std::make_shared<Graph>(read_graph(*proto.mutable_g(), shown));
      break;
    default:
      out.defect = unreadable_kind(proto);
  }
  return out;
}

std::string place_of(const NodeProto& proto, size_t number, int64_t opset) {
  std::string place = "node " + std::to_string(number);
  if (!proto.name().empty()) place += " '" + proto.name() + "'";
  const std::string domain = domain_of(proto.domain());
  return place + " (" + proto.op_type() + " of " +
         (domain.empty() ? "the default domain" : "the domain '" + domain + "'") + ", opset " +
         std::to_string(opset) + ")";
}

// Finds the row of the operator, or writes down why there is none.
void find_row(Node& node) {
  const OpRow* const row = find_op(node.info.domain, node.info.op_type, node.info.opset);
  node.info.reason = row == nullptr
                         ? why_missing(node.info.domain, node.info.op_type, node.info.opset)
                         : attributes_defect(*row, node);
  node.info.is_supported = node.info.reason.empty();
  if (row == nullptr) return;
  node.info.route = row->route;
  if (node.info.is_supported) node.row = row;
}

Node Reader::read_node(NodeProto& proto, size_t number, const std::string& name) const {
  Node node;
  node.info.name = proto.name();
  node.info.op_type = proto.op_type();
  node.info.domain = domain_of(proto.domain());
  const auto found = opsets.find(node.info.domain);
  node.info.opset = found == opsets.end() ? 0 : found->second;
  node.place = place_of(proto, number, node.info.opset);
  if (found == opsets.end()) {
    refuse(name, node.place + ": opset_import does not have its domain");
  }
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  for (AttributeProto& attribute : *proto.mutable_attribute()) {
    if (node.find(attribute.name()) != nullptr) {
      refuse(name, node.place + " has the attribute '" + attribute.name() + "' twice");
    }
    node.attributes.push_back(read_attribute(attribute, name + ": " + node.place));
  }
  find_row(node);
  return node;
}

Graph Reader::read_graph(GraphProto& proto, const std::string& name) const {
  Graph graph;
  graph.name = proto.name();
  if (proto.sparse_initializer_size() > 0) {
    throw Error(BP_UNSUPPORTED,
                name + ": the graph has sparse initialisers; make them dense before the export");
  }
  for (auto& initializer : *proto.mutable_initializer()) {
    const std::string shown = name + ": initialiser '" + initializer.name() + "'";
    if (initializer.name().empty()) refuse(name, "an initialiser has no name");
    if (graph.constants.contains(initializer.name())) refuse(shown, "it is there twice");
    graph.constants[initializer.name()].host =
        std::make_shared<HostTensor>(read_tensor(initializer, folder, shown));
    ::onnx::TensorProto().Swap(&initializer);
  }
  for (const auto& input : proto.input()) {
    graph.inputs.push_back(read_value_info(input, name));
    graph.inputs.back().is_required = !graph.constants.contains(input.name());
  }
  for (const auto& output : proto.output()) {
    graph.outputs.push_back(read_value_info(output, name));
  }
  for (int i = 0; i < proto.node_size(); ++i) {
    graph.nodes.push_back(read_node(*proto.mutable_node(i), static_cast<size_t>(i), name));
  }
  return graph;
}

// Makes constants of the inputs for which there is a tensor.
void fix_inputs(Graph& graph, const TensorMap& constants, const std::string& name, Device device) {
  for (const auto& [input, tensor] : constants) {
    const auto found = std::ranges::find(graph.inputs, input, &OnnxValueInfo::name);
    if (found == graph.inputs.end()) refuse(name, "the model has no input '" + input + "'");
    check_input(*found, tensor, name);
    graph.constants[input] = Constant{nullptr, tensor.to(device)};
    graph.inputs.erase(found);
  }
}

// Makes the results of Constant nodes constants of the graph, which are copied to the device once.
void fold_constants(Graph& graph, Device device) {
  for (Node& node : graph.nodes) {
    for (Attribute& attribute : node.attributes) {
      if (attribute.graph) fold_constants(*attribute.graph, device);
    }
    if (node.row == nullptr || node.info.op_type != "Constant" || node.outputs.empty()) continue;
    try {
      const Values values = node.row->run(Call(node, {}, device, Scope()));
      graph.constants[node.outputs[0]].host = values[0].on_host();
      node.attributes.clear();
      node.is_folded = true;
    } catch (const Error& e) {
      node.info.reason = e.what();
      node.info.is_supported = false;
      node.row = nullptr;
    }
  }
}

// Copies the constants to the device. The host keeps small ones, which may be shapes and axes.
void place_constants(Graph& graph, Device device) {
  for (auto& [name, constant] : graph.constants) {
    if (constant.tensor) continue;
    constant.tensor = to_device(*constant.host, device);
    if (constant.host->bytes.size() > kLargestHostCopy) constant.host.reset();
  }
  for (Node& node : graph.nodes) {
    for (Attribute& attribute : node.attributes) {
      if (attribute.graph) place_constants(*attribute.graph, device);
    }
  }
}

void list_nodes(const Graph& graph, std::vector<OnnxNodeInfo>& out) {
  for (const Node& node : graph.nodes) {
    out.push_back(node.info);
    for (const Attribute& attribute : node.attributes) {
      if (attribute.graph) list_nodes(*attribute.graph, out);
    }
  }
}

}  // namespace

const char* to_string(Attribute::Kind kind) {
  using Kind = Attribute::Kind;
  switch (kind) {
    case Kind::kFloat:
      return "a float";
    case Kind::kInt:
      return "an integer";
    case Kind::kString:
      return "a string";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kGraph:
      return "a graph";
    case Kind::kFloats:
      return "a list of floats";
    case Kind::kInts:
      return "a list of integers";
    case Kind::kStrings:
      return "a list of strings";
    default:
      return "another value";
  }
}

const Attribute* Node::find(std::string_view name) const {
  const auto found = std::ranges::find(attributes, name, &Attribute::name);
  return found == attributes.end() ? nullptr : &*found;
}

LoadedModel read_model(std::string bytes, const std::string& name, const DataFolder& folder,
                       Device device, const TensorMap& constants) {
  ::onnx::ModelProto proto;
  parse_message(proto, bytes, name, "an ONNX model");
  bytes = std::string();  // The messages have copies.
  if (proto.ir_version() < kOldestIr || proto.ir_version() > kNewestIr) {
    refuse(name, "ir_version is " + std::to_string(proto.ir_version()) + "; allowed: " +
                     std::to_string(kOldestIr) + " to " + std::to_string(kNewestIr));
  }
  if (!proto.has_graph()) refuse(name, "the model has no graph (is it cut, or no model?)");
  if (proto.functions_size() > 0) {
    throw Error(BP_UNSUPPORTED, name + ": the model has functions of its own, such as '" +
                                    proto.functions(0).name() + "'; inline them before the export");
  }
  LoadedModel model{device, name, read_opsets(proto, name), {}, {}};
  model.graph = Reader{folder, device, model.opsets}.read_graph(*proto.mutable_graph(), name);
  fix_inputs(model.graph, constants, name, device);
  check_graph(model.graph, {}, name);
  fold_constants(model.graph, device);
  place_constants(model.graph, device);
  synchronize_stream(device);  // Other streams may run the model.
  list_nodes(model.graph, model.nodes);
  return model;
}

}  // namespace bp::onnx
