// Decides which nodes a device runs, by a trial: each node is run once on the device, as a model of
// its own, with constants as they are and zeros for what is known only later. Only so is everything
// asked that decides: the importer's table, attributes, dtypes, shapes, and the device's kernels.
#pragma once

#include <map>
#include <string>

#include "backplane/runtime/onnx.hpp"
#include "graph.hpp"

namespace bpo {

struct Verdict {
  std::string refusal;  // Why the device does not run the node; "" if it does.
};

// The trials of one session. Nodes that agree in all but names have one trial.
class Trials {
 public:
  Trials(const Ort& ort, bp::Device device) : ort_(ort), device_(device), stream_(device) {}

  // Throws bp::Error only if the device is lost.
  Verdict run(const GraphNode& node);

 private:
  struct Model;
  Verdict run_model(const GraphNode& node);
  Verdict run_once(const GraphNode& node, const Model& model);

  const Ort& ort_;
  bp::Device device_;
  bp::Stream stream_;
  std::map<std::string, Verdict> known_;
};

}  // namespace bpo
