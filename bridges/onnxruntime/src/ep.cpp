#include "ep.hpp"

#include <set>

#include "capability.hpp"
#include "compute.hpp"
#include "factory.hpp"

namespace bpo {
namespace {

// A larger constant is given to the model as an input, whose memory is copied once; the bytes of a
// model may have at most 2 GiB. It is the limit up to which the importer keeps values on the host.
constexpr size_t kLargestConstant = 65536;

}  // namespace

Ep::Ep(const Ort& ort, bp::Device device, const Options& options, const OrtLogger* logger,
       const Memories& memories, const DeviceMemory* memory)
    : OrtEp{},
      ort_(ort),
      device_(device),
      options_(options),
      logger_(logger),
      memory_(memory),
      copies_(ort, memories, kProviderName),
      trials_(ort, device) {
  ort_version_supported = ort.version;
  GetName = [](const OrtEp*) { return kProviderName; };
  GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* out) {
    return guarded(of(self).ort_, [&] { of(self).choose_nodes(graph, out); });
  };
  Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, size_t count,
               OrtNodeComputeInfo** out, OrtNode**) {
    return guarded(of(self).ort_, [&] {
      for (size_t i = 0; i < count; ++i) out[i] = of(self).compile(graphs[i], fused[i]);
    });
  };
  ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos, size_t count) {
    for (size_t i = 0; i < count; ++i) delete static_cast<Partition*>(infos[i]);
  };
  GetKernelRegistry = [](OrtEp* self, const OrtKernelRegistry** out) -> OrtStatus* {
    *out = of(self).memory_ != nullptr ? of(self).copies_.registry() : nullptr;
    return nullptr;
  };
  IsConcurrentRunSupported = [](OrtEp*, bool* out) -> OrtStatus* {
    *out = true;
    return nullptr;
  };
}

void Ep::choose_nodes(const OrtGraph* graph, OrtEpGraphSupportInfo* out) {
  // A node with graphs is taken whole or not at all, so nothing is taken out of a graph inside.
  const OrtNode* parent = nullptr;
  ort_.check(ort_.Graph_GetParentNode(graph, &parent), "Graph_GetParentNode");
  if (parent != nullptr) return;

  const std::vector<GraphNode> nodes = read_nodes(ort_, graph);
  std::vector<Verdict> verdicts;
  for (const GraphNode& node : nodes) verdicts.push_back(trials_.run(node));
  const std::vector<std::vector<size_t>> partitions = make_partitions(nodes, verdicts);
  const OrtNodeFusionOptions fusion{ort_.version, true};
  for (const std::vector<size_t>& members : partitions) {
    std::vector<const OrtNode*> handles;
    for (const size_t i : members) handles.push_back(nodes[i].handle);
    ort_.check(ort_.EpGraphSupportInfo_AddNodesToFuse(out, handles.data(), handles.size(), &fusion),
               "EpGraphSupportInfo_AddNodesToFuse");
  }
  ort_.log(logger_, kInfo, describe(device_.name(), nodes, verdicts, partitions.size()));
}

OrtNodeComputeInfo* Ep::compile(const OrtGraph* graph, const OrtNode* fused) {
  GraphParts parts;
  PartitionParts made;
  bp::TensorMap weights;  // Large constants, of which the bytes of the model have no copy.
  Opsets opsets;
  for (const Edge& edge : inputs_of(ort_, fused)) made.inputs.push_back(edge.name);
  for (const Edge& edge : outputs_of(ort_, fused)) made.outputs.push_back(edge.name);
  const std::set<std::string> given(made.inputs.begin(), made.inputs.end());
  std::set<std::string> known = given;
  const auto add_constant = [&](const Edge& edge) {
    if (edge.name.empty() || known.contains(edge.name)) return;
    const std::optional<ConstantView> constant = constant_of(ort_, edge);
    if (!constant) return;
    known.insert(edge.name);
    if (constant->bytes.size() <= kLargestConstant) {
      parts.constants.push_back(tensor_bytes(*constant));
    } else {
      weights[edge.name] = bp::from_host(constant->bytes.data(), constant->dims,
                                         bp::onnx_dtype(constant->element_type), device_);
      parts.inputs.push_back(edge.name);
    }
  };
  for (const GraphNode& node : read_nodes(ort_, graph)) {
    for (const Edge& edge : node.inputs) add_constant(edge);
    for (const Edge& edge : node.implicit_inputs) add_constant(edge);
    merge(opsets, node.opsets);
    parts.nodes.push_back(node.bytes());
    made.has_graphs = made.has_graphs || node.has_graphs;
  }
  parts.inputs.insert(parts.inputs.end(), made.inputs.begin(), made.inputs.end());
  parts.outputs = made.outputs;
  const char* name = nullptr;
  ort_.check(ort_.Node_GetName(fused, &name), "Node_GetName");
  bp::OnnxModel model =
      bp::OnnxModel::parse(model_bytes(parts, opsets), name, device_, true, weights);
  bp::synchronize_stream(device_);  // The lanes of the partition have streams of their own.
  return new Partition(ort_, std::move(model), std::move(made), options_, logger_, memory_);
}

}  // namespace bpo
