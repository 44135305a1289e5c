// Runs graphs: each node takes its inputs out of the scope and puts its outputs there. A value
// leaves the scope after its last use, so that its memory is used again.
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "backplane/runtime/autograd.hpp"
#include "runtime/io/onnx/call.hpp"
#include "runtime/io/onnx/check_graph.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/read_model.hpp"

namespace bp {
namespace onnx {
namespace {

using Clock = std::chrono::steady_clock;

bp_dispatch_statistics counts_of(Device device) {
  bp_dispatch_statistics counts{sizeof(counts), BP_STRUCT_DISPATCH_STATISTICS, nullptr};
  check(bp_target_statistics(&device.target(), 0, &counts), "target.statistics");
  return counts;
}

// Tells the observer what a node did between two moments.
class Watch {
 public:
  Watch(const Node& node, Device device) : node_(node), device_(device) {
    before_ = counts_of(device_);
    begin_ = Clock::now();
  }
  void report(const OnnxModel::Observer& observer, bool is_random) const {
    synchronize_stream(device_);
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
    const bp_dispatch_statistics after = counts_of(device_);
    observer({node_.info, time.count(), after.native_count - before_.native_count,
              after.decomposed_count - before_.decomposed_count,
              after.host_fallback_count - before_.host_fallback_count, is_random});
  }

 private:
  const Node& node_;
  Device device_;
  bp_dispatch_statistics before_;
  Clock::time_point begin_;
};

using Uses = std::map<std::string, size_t>;

// Counts what a subgraph names. Nobody takes these uses back, so the values stay until the end.
void count_subgraph_uses(const Graph& graph, Uses& uses) {
  for (const OnnxValueInfo& output : graph.outputs) ++uses[output.name];
  for (const Node& node : graph.nodes) {
    for (const std::string& input : node.inputs) ++uses[input];
    for (const Attribute& attribute : node.attributes) {
      if (attribute.graph) count_subgraph_uses(*attribute.graph, uses);
    }
  }
}

// Counts how often each value of the graph is still needed by its nodes and as an output.
Uses count_uses(const Graph& graph) {
  Uses uses;
  for (const OnnxValueInfo& output : graph.outputs) ++uses[output.name];
  for (const Node& node : graph.nodes) {
    for (const std::string& input : node.inputs) ++uses[input];
    for (const Attribute& attribute : node.attributes) {
      if (attribute.graph) count_subgraph_uses(*attribute.graph, uses);
    }
  }
  return uses;
}

Values inputs_of(const Node& node, const Scope& scope) {
  Values inputs;
  for (const std::string& name : node.inputs) {
    const Value* const value = name.empty() ? nullptr : scope.find(name);
    if (value == nullptr && !name.empty()) {
      throw Error(BP_INVALID_ARGUMENT, "nobody has made the value '" + name + "'");
    }
    inputs.push_back(value == nullptr ? Value() : *value);
  }
  return inputs;
}

bool is_output(const Graph& graph, const std::string& name) {
  return std::ranges::find(graph.outputs, name, &OnnxValueInfo::name) != graph.outputs.end();
}

// Returns whether the node drew random numbers. What leaves the graph is computed as a part of the
// node.
bool run_node(const Node& node, Device device, Scope& scope) {
  if (node.row == nullptr) throw Error(BP_UNSUPPORTED, node.info.reason);
  const Call call(node, inputs_of(node, scope), device, scope);
  Values results = node.row->run(call);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    if (i >= results.size() || !results[i]) {
      throw Error(BP_UNSUPPORTED,
                  "output " + std::to_string(i) + " ('" + node.outputs[i] + "') is not supported");
    }
    if (is_output(*scope.graph, node.outputs[i])) results[i] = results[i].decoded();
    scope.values[node.outputs[i]] = std::move(results[i]);
  }
  return call.is_random();
}

void forget_used(const Node& node, Uses& uses, Scope& scope) {
  for (const std::string& input : node.inputs) {
    if (!input.empty() && --uses[input] == 0) scope.values.erase(input);
  }
  for (const std::string& output : node.outputs) {
    if (!uses.contains(output)) scope.values.erase(output);
  }
}

}  // namespace

Values run_graph(const Graph& graph, std::map<std::string, Value> given, Device device,
                 const Scope* outer, const OnnxModel::Observer* observer) {
  Scope scope{&graph, outer, std::move(given)};
  for (const auto& [name, constant] : graph.constants) {
    scope.values.emplace(name, Value(constant.tensor, constant.host, constant.forms));
  }
  Uses uses = count_uses(graph);
  for (const Node& node : graph.nodes) {
    if (node.is_folded) continue;
    try {
      const std::optional<Watch> watch =
          observer == nullptr ? std::nullopt : std::optional<Watch>(std::in_place, node, device);
      const bool is_random = run_node(node, device, scope);
      if (watch) watch->report(*observer, is_random);
    } catch (const Error& e) {
      throw Error(e.code(), node.place + ": " + e.what());
    }
    forget_used(node, uses, scope);
  }
  Values outputs;
  for (const OnnxValueInfo& output : graph.outputs) {
    const Value* const value = scope.find(output.name);
    if (value == nullptr) {
      throw Error(BP_INVALID_ARGUMENT, "nobody has made the output '" + output.name + "'");
    }
    outputs.push_back(*value);
  }
  return outputs;
}

namespace {

std::map<std::string, Value> take_inputs(const LoadedModel& model, const TensorMap& inputs) {
  std::map<std::string, Value> values;
  std::string known;
  for (const OnnxValueInfo& info : model.graph.inputs) {
    known += (known.empty() ? "'" : ", '") + info.name + "'";
    const auto found = inputs.find(info.name);
    if (found == inputs.end()) {
      if (!info.is_required) continue;
      throw Error(BP_INVALID_ARGUMENT,
                  model.name + ": input '" + info.name + "' is not given; it is " + describe(info));
    }
    check_input(info, found->second, model.name);
    values.emplace(info.name, found->second.to(model.device));
  }
  for (const auto& [name, tensor] : inputs) {
    if (std::ranges::find(model.graph.inputs, name, &OnnxValueInfo::name) ==
        model.graph.inputs.end()) {
      throw Error(BP_INVALID_ARGUMENT, model.name + ": the model has no input '" + name +
                                           "'; its inputs are " + (known.empty() ? "none" : known));
    }
  }
  return values;
}

void check_support(const LoadedModel& model) {
  const auto check_graph_nodes = [&](const Graph& graph, const auto& self) -> void {
    for (const Node& node : graph.nodes) {
      if (node.row == nullptr) {
        throw Error(BP_UNSUPPORTED, model.name + ": " + node.place + ": " + node.info.reason);
      }
      for (const Attribute& attribute : node.attributes) {
        if (attribute.graph) self(*attribute.graph, self);
      }
    }
  };
  check_graph_nodes(model.graph, check_graph_nodes);
}

}  // namespace
}  // namespace onnx

const char* to_string(OnnxRoute route) {
  switch (route) {
    case OnnxRoute::kOp:
      return "op";
    case OnnxRoute::kView:
      return "view";
    case OnnxRoute::kComposed:
      return "composed";
    default:
      return "host";
  }
}

OnnxModel OnnxModel::load(const std::string& path, Device device, bool needs_support) {
  const std::string folder = std::filesystem::path(path).parent_path();
  auto model = std::make_shared<onnx::LoadedModel>(
      onnx::read_model(onnx::read_whole(path), path, {folder.empty() ? "." : folder}, device));
  if (needs_support) onnx::check_support(*model);
  return OnnxModel(std::move(model));
}

OnnxModel OnnxModel::parse(std::string_view bytes, const std::string& name, Device device,
                           bool needs_support, const TensorMap& constants) {
  auto model = std::make_shared<onnx::LoadedModel>(
      onnx::read_model(std::string(bytes), name, {}, device, constants));
  if (needs_support) onnx::check_support(*model);
  return OnnxModel(std::move(model));
}

Device OnnxModel::device() const { return model_->device; }
const std::vector<OnnxValueInfo>& OnnxModel::inputs() const { return model_->graph.inputs; }
const std::vector<OnnxValueInfo>& OnnxModel::outputs() const { return model_->graph.outputs; }
const std::vector<OnnxNodeInfo>& OnnxModel::nodes() const { return model_->nodes; }

TensorMap OnnxModel::run(const TensorMap& inputs, const Observer& observer) const {
  const NoGradGuard no_grad;
  const DeviceGuard here(model_->device);
  std::map<std::string, onnx::Value> given = onnx::take_inputs(*model_, inputs);
  try {
    const onnx::Values values = onnx::run_graph(model_->graph, std::move(given), model_->device,
                                                nullptr, observer ? &observer : nullptr);
    TensorMap outputs;
    for (size_t i = 0; i < values.size(); ++i) {
      outputs[model_->graph.outputs[i].name] = values[i].on(model_->device);
    }
    return outputs;
  } catch (const Error& e) {
    throw Error(e.code(), model_->name + ": " + e.what());
  }
}

}  // namespace bp
