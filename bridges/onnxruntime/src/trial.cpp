#include "trial.hpp"

#include <algorithm>

namespace bpo {
namespace {

// A constant of more bytes is not read by the importer on the host, so the trial uses zeros.
constexpr size_t kLargestConstant = 65536;

// The extent that stands for one which is known only later: it broadcasts with every other one. A
// tensor of which not even the number of axes is known is tried with the shape of another input, or
// as a matrix.
constexpr int64_t kUnknownExtent = 1;
const std::vector<int64_t> kUnknownShape = {kUnknownExtent, kUnknownExtent};

std::vector<int64_t> guess_shape(const Ort& ort, const GraphNode& node) {
  for (const Edge& input : node.inputs) {
    if (input.name.empty()) continue;
    const ValueType type = type_of(ort, input);
    if (type.shape && type.shape->size() > 1) return *type.shape;
  }
  return kUnknownShape;
}

constexpr uint32_t kFirstApiWithGraphs = 27;

[[noreturn]] void refuse(const std::string& why) { throw bp::Error(BP_UNSUPPORTED, why); }

// Makes a tensor of zeros by a copy, since a device may have no kernel that fills.
bp::Tensor make_zeros(const std::string& name, int32_t element_type,
                      const std::vector<int64_t>& shape, bp::Device device) {
  const bp_dtype dtype = bp::onnx_dtype(element_type);
  if (dtype == 0) {
    refuse("'" + name + "' has the element type " + std::to_string(element_type) +
           ", for which there is no dtype");
  }
  uint64_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
  const std::vector<char> zeros((count * bp_dtype_bits(dtype) + 7) / 8);
  return bp::from_host(zeros.data(), shape, dtype, device);
}

// Whether operators may take the value for a shape, an axis, a place, a scale or a limit.
bool is_parameter(const ValueType& type) {
  constexpr int32_t kInt32 = 6, kInt64 = 7;
  return type.element_type == kInt32 || type.element_type == kInt64 || type.shape->size() <= 1;
}

// Whether the tensor has the shape that the model gives, as far as it gives one. How many elements
// some operators find depends on values, and among zeros it is none.
bool has_shape(const bp::Tensor& tensor, const ValueType& promised) {
  return !promised.shape ||
         std::ranges::equal(tensor.shape(), *promised.shape, [](int64_t made, int64_t said) {
           return said < 0 || made == 0 || made == said;
         });
}

void add_key(std::string& key, std::string_view part) {
  key += std::to_string(part.size()) + ":";
  key += part;
}

}  // namespace

// A node as a model of its own, with what it is run on.
struct Trials::Model {
  GraphParts parts;
  std::map<std::string, std::pair<int32_t, std::vector<int64_t>>> zeros;
  std::vector<std::string> names;  // Of the inputs, without repetition.
  std::string key;                 // All that decides the verdict.
  bool is_open = false;  // An illegal call says nothing: a shape or a parameter is not known.

  Model(const Ort& ort, const GraphNode& node) {
    for (const std::string_view part : {std::string_view(node.op), std::string_view(node.domain),
                                        std::string_view(node.attributes)}) {
      add_key(key, part);
    }
    add_key(key, std::to_string(node.since));
    for (const Edge& input : node.inputs) add_input(ort, node, input);
    for (const Edge& output : node.outputs) {
      add_key(key, output.name.empty() ? "-" : "out");
      if (!output.name.empty()) parts.outputs.push_back(output.name);
    }
    parts.nodes.push_back(node.bytes());
  }

  void add_input(const Ort& ort, const GraphNode& node, const Edge& input) {
    const auto first = std::ranges::find(names, input.name);
    if (first != names.end()) {
      return add_key(key, "input " + std::to_string(first - names.begin()));
    }
    names.push_back(input.name);
    add_key(key, input.name.empty() ? "-" : "in");
    if (input.name.empty()) return;
    const std::optional<ConstantView> constant = constant_of(ort, input);
    if (constant && constant->bytes.size() <= kLargestConstant) {
      add_key(key, tensor_bytes({"", constant->element_type, constant->dims, constant->bytes}));
      parts.constants.push_back(tensor_bytes(*constant));
      return;
    }
    ValueType type = type_of(ort, input);
    if (!type.is_tensor) refuse("the model does not say that '" + input.name + "' is a tensor");
    is_open = is_open || !type.shape || is_parameter(type);
    if (!type.shape) type.shape = guess_shape(ort, node);
    add_key(key, std::to_string(type.element_type));
    for (int64_t& extent : *type.shape) {
      is_open = is_open || extent < 0;
      if (extent < 0) extent = kUnknownExtent;
      add_key(key, std::to_string(extent));
    }
    parts.inputs.push_back(input.name);
    zeros[input.name] = {type.element_type, std::move(*type.shape)};
  }
};

// Runs the node, and looks at what it made and where.
Verdict Trials::run_once(const GraphNode& node, const Model& model) {
  const bp::StreamGuard guard(stream_);
  const bp::OnnxModel parsed =
      bp::OnnxModel::parse(model_bytes(model.parts, node.opsets), "trial", device_);
  bp::TensorMap inputs;
  for (const auto& [name, zeros] : model.zeros) {
    inputs[name] = make_zeros(name, zeros.first, zeros.second, device_);
  }
  Verdict verdict;
  bool follows_values = false;
  const bp::TensorMap outputs = parsed.run(inputs, [&](const bp::OnnxNodeRun& run) {
    follows_values = run.node.route == bp::OnnxRoute::kHost;
    if (run.host_fallback_count > 0) {
      verdict.refusal =
          "the device has no kernels for it, so that the library would compute it "
          "on the host";
    }
  });
  stream_.synchronize();
  for (const Edge& output : node.outputs) {
    if (output.name.empty()) continue;
    const ValueType promised = type_of(ort_, output);
    const bp::Tensor& made = outputs.at(output.name);
    const bool is_dtype =
        promised.element_type == 0 || bp::onnx_dtype(promised.element_type) == made.dtype();
    const bool is_shape = model.is_open || follows_values || has_shape(made, promised);
    if (!is_dtype || !is_shape) {
      verdict.refusal = "output '" + output.name + "' would be " + bp::dtype_text(made.dtype()) +
                        " " + bp::to_string(made.shape()) + ", which is not what the model says";
    }
  }
  return verdict;
}

Verdict Trials::run_model(const GraphNode& node) {
  try {
    const Model model(ort_, node);
    const auto [place, is_new] = known_.try_emplace(model.key);
    if (!is_new) return place->second;
    try {
      place->second = run_once(node, model);
    } catch (const bp::Error& e) {
      if (e.code() == BP_DEVICE_LOST) throw;
      // Zeros may be no legal input, such as a shape or a divisor. Then nothing is known against
      // the node.
      const bool is_call = e.code() == BP_INVALID_ARGUMENT || e.code() == BP_DATA_FAILURE ||
                           e.code() == BP_STREAM_FAILED;
      if (!is_call || !model.is_open) place->second.refusal = e.what();
      stream_ = bp::Stream(device_);
    }
    return place->second;
  } catch (const bp::Error& e) {
    if (e.code() == BP_DEVICE_LOST) throw;
    return {e.what()};
  }
}

Verdict Trials::run(const GraphNode& node) {
  if (node.is_assigned) return {"a provider has taken it already"};
  if (!node.defect.empty()) return {node.defect};
  if (!node.has_graphs) return run_model(node);
  if (ort_.version < kFirstApiWithGraphs) {
    return {"ONNX Runtime before 1." + std::to_string(kFirstApiWithGraphs) +
            " does not give a partition what the graphs of a node take from outside"};
  }
  // How often a graph inside runs depends on values, so its nodes are tried one by one.
  Verdict verdict;
  for (const GraphNode& inner : node.inner) {
    const Verdict one = run(inner);
    if (!one.refusal.empty()) {
      verdict.refusal = "in its graph, " + inner.op + " '" + inner.name + "': " + one.refusal;
      return verdict;
    }
  }
  GraphParts parts{{node.bytes()}, {}, {}, {}};
  for (const std::vector<Edge>& list : {node.inputs, node.implicit_inputs}) {
    for (const Edge& edge : list) {
      if (edge.name.empty() || std::ranges::count(parts.inputs, edge.name) > 0) continue;
      parts.inputs.push_back(edge.name);
    }
  }
  for (const Edge& output : node.outputs) {
    if (!output.name.empty()) parts.outputs.push_back(output.name);
  }
  try {
    bp::OnnxModel::parse(model_bytes(parts, node.opsets), "trial", device_);
  } catch (const bp::Error& e) {
    verdict.refusal = e.what();
  }
  return verdict;
}

}  // namespace bpo
