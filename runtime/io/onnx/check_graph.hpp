// Checks the names of a graph, and puts its nodes into an order in which they can run.
#pragma once

#include <set>
#include <string>

#include "runtime/io/onnx/model.hpp"

namespace bp::onnx {

// Throws Error unless each value has one source, each input of a node and each output of the graph
// has one, and no node needs its own result. `outer` has the names of the graphs around this one.
// Subgraphs are checked too. `name` begins the messages.
void check_graph(Graph& graph, const std::set<std::string>& outer, const std::string& name);

// Returns text like "f32 (2, -1)".
std::string describe(const OnnxValueInfo& info);

// Throws Error unless `tensor` is what the model says of the input. `name` is that of the model.
void check_input(const OnnxValueInfo& info, const Tensor& tensor, const std::string& name);

}  // namespace bp::onnx
