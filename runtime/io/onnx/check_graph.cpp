#include "runtime/io/onnx/check_graph.hpp"

#include <algorithm>
#include <queue>

namespace bp::onnx {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(BP_INVALID_ARGUMENT, what + ": " + why);
}

// Maps each value that a node makes to the number of the node.
using Producers = std::map<std::string, size_t>;

Producers producers_of(const Graph& graph, const std::set<std::string>& given,
                       const std::string& name) {
  Producers producers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const std::string& output : graph.nodes[i].outputs) {
      if (output.empty()) continue;
      if (given.contains(output)) {
        refuse(name, graph.nodes[i].place + " makes '" + output +
                         "', which is an input or an initialiser already");
      }
      const auto [found, is_new] = producers.emplace(output, i);
      if (!is_new) {
        refuse(name, graph.nodes[i].place + " makes '" + output + "', which " +
                         graph.nodes[found->second].place + " makes too");
      }
    }
  }
  return producers;
}

// Adds the names that `graph` takes from the graphs around it.
void collect_outer_names(const Graph& graph, std::set<std::string>& out) {
  std::set<std::string> own;
  for (const OnnxValueInfo& input : graph.inputs) own.insert(input.name);
  for (const auto& [name, constant] : graph.constants) own.insert(name);
  for (const Node& node : graph.nodes) own.insert(node.outputs.begin(), node.outputs.end());
  std::set<std::string> used;
  for (const OnnxValueInfo& output : graph.outputs) used.insert(output.name);
  for (const Node& node : graph.nodes) {
    used.insert(node.inputs.begin(), node.inputs.end());
    for (const Attribute& attribute : node.attributes) {
      if (attribute.graph) collect_outer_names(*attribute.graph, used);
    }
  }
  std::ranges::set_difference(used, own, std::inserter(out, out.end()));
}

// Returns the names that a node needs, with those that its subgraphs take from outside.
std::set<std::string> needs_of(const Node& node) {
  std::set<std::string> needs(node.inputs.begin(), node.inputs.end());
  for (const Attribute& attribute : node.attributes) {
    if (attribute.graph) collect_outer_names(*attribute.graph, needs);
  }
  needs.erase("");
  return needs;
}

// The edges between the nodes of a graph.
struct Order {
  std::vector<std::vector<size_t>> users;  // Of each node: the nodes that need its results.
  std::vector<size_t> missing;             // Of each node: how many nodes it waits for.
};

Order order_of(const Graph& graph, const Producers& producers, const std::set<std::string>& known,
               const std::string& name) {
  Order order{std::vector<std::vector<size_t>>(graph.nodes.size()),
              std::vector<size_t>(graph.nodes.size())};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    std::set<size_t> before;
    for (const std::string& need : needs_of(graph.nodes[i])) {
      const auto found = producers.find(need);
      if (found != producers.end()) {
        before.insert(found->second);
      } else if (!known.contains(need)) {
        refuse(name, graph.nodes[i].place + " needs '" + need +
                         "', which no node makes, and which is no input and no initialiser");
      }
    }
    for (const size_t producer : before) order.users[producer].push_back(i);
    order.missing[i] = before.size();
  }
  return order;
}

// Sorts the nodes so that each one follows those that it needs, and else keeps their order.
void sort_nodes(Graph& graph, Order order, const std::string& name) {
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (order.missing[i] == 0) ready.push(i);
  }
  std::vector<Node> sorted;
  sorted.reserve(graph.nodes.size());
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    sorted.push_back(std::move(graph.nodes[i]));
    for (const size_t user : order.users[i]) {
      if (--order.missing[user] == 0) ready.push(user);
    }
  }
  if (sorted.size() != graph.nodes.size()) {
    const auto waiting = std::ranges::find_if(order.missing, [](size_t n) { return n > 0; });
    const auto place = static_cast<size_t>(waiting - order.missing.begin());
    refuse(name, graph.nodes[place].place + " needs its own result: the graph has a cycle");
  }
  graph.nodes = std::move(sorted);
}

std::set<std::string> given_names(const Graph& graph, const std::string& name) {
  std::set<std::string> names;
  for (const OnnxValueInfo& input : graph.inputs) {
    if (input.name.empty()) refuse(name, "an input of the graph has no name");
    if (!names.insert(input.name).second) {
      refuse(name, "the graph has two inputs '" + input.name + "'");
    }
  }
  for (const auto& [constant, value] : graph.constants) names.insert(constant);
  return names;
}

void check_outputs(const Graph& graph, const std::set<std::string>& known,
                   const Producers& producers, const std::string& name) {
  std::set<std::string> seen;
  for (const OnnxValueInfo& output : graph.outputs) {
    if (!known.contains(output.name) && !producers.contains(output.name)) {
      refuse(name, "no node makes the output '" + output.name + "' of the graph");
    }
    if (!seen.insert(output.name).second) {
      refuse(name, "the graph has two outputs '" + output.name + "'");
    }
  }
}

}  // namespace

void check_graph(Graph& graph, const std::set<std::string>& outer, const std::string& name) {
  const std::set<std::string> given = given_names(graph, name);
  std::set<std::string> known = outer;
  known.insert(given.begin(), given.end());
  const Producers producers = producers_of(graph, given, name);
  check_outputs(graph, known, producers, name);
  sort_nodes(graph, order_of(graph, producers, known, name), name);

  for (const auto& [output, producer] : producers) known.insert(output);
  for (Node& node : graph.nodes) {
    for (Attribute& attribute : node.attributes) {
      if (attribute.graph) check_graph(*attribute.graph, known, name + ": " + node.place);
    }
  }
}

std::string describe(const OnnxValueInfo& info) {
  std::string text = info.dtype == 0 ? "any dtype" : dtype_text(info.dtype);
  if (info.shape) text += " " + bp::to_string(IntList(*info.shape));
  return text;
}

// Throws Error unless `tensor` is what the model says of the input.
void check_input(const OnnxValueInfo& info, const Tensor& tensor, const std::string& name) {
  if (!tensor) throw Error(BP_INVALID_ARGUMENT, name + ": input '" + info.name + "' is empty");
  bool fits = info.dtype == 0 || info.dtype == tensor.dtype();
  if (info.shape) {
    const IntList given = tensor.shape();
    fits = fits && std::ranges::equal(given, *info.shape,
                                      [](int64_t a, int64_t b) { return b == -1 || a == b; });
  }
  if (fits) return;
  throw Error(BP_INVALID_ARGUMENT, name + ": input '" + info.name + "' is " +
                                       dtype_text(tensor.dtype()) + " " +
                                       bp::to_string(tensor.shape()) +
                                       "; allowed: " + describe(info) + " (-1: any extent)");
}

}  // namespace bp::onnx
