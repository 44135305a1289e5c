#include "capability.hpp"

#include <algorithm>
#include <map>

namespace bpo {

// The depth of a node is how often the paths to it leave the device, at most. A path that leaves
// the device and comes back reaches a greater depth, so the nodes of the device of one depth are
// convex.
std::vector<std::vector<size_t>> make_partitions(const std::vector<GraphNode>& nodes,
                                                 const std::vector<Verdict>& verdicts) {
  std::map<std::string, size_t> producers;
  std::vector<size_t> depths(nodes.size(), 0);
  std::map<size_t, std::vector<size_t>> partitions;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool is_ours = verdicts[i].refusal.empty();
    const auto follow = [&](const Edge& edge) {
      const auto found = producers.find(edge.name);
      if (edge.name.empty() || found == producers.end()) return;
      const size_t before = found->second;
      const bool leaves = verdicts[before].refusal.empty() && !is_ours;
      depths[i] = std::max(depths[i], depths[before] + (leaves ? 1 : 0));
    };
    std::ranges::for_each(nodes[i].inputs, follow);
    std::ranges::for_each(nodes[i].implicit_inputs, follow);
    for (const Edge& output : nodes[i].outputs) {
      if (!output.name.empty()) producers[output.name] = i;
    }
    if (is_ours) partitions[depths[i]].push_back(i);
  }
  std::vector<std::vector<size_t>> list;
  for (auto& [depth, members] : partitions) list.push_back(std::move(members));
  return list;
}

std::string describe(const std::string& device, const std::vector<GraphNode>& nodes,
                     const std::vector<Verdict>& verdicts, size_t partition_count) {
  std::map<std::string, size_t> others;
  size_t count = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].is_assigned) continue;
    if (verdicts[i].refusal.empty()) {
      ++count;
    } else {
      ++others[nodes[i].op + " (" + verdicts[i].refusal + ")"];
    }
  }
  std::string text = "Backplane: " + std::to_string(count) + " of " + std::to_string(nodes.size()) +
                     " nodes run on " + device + ", in " + std::to_string(partition_count) +
                     " partitions";
  for (const auto& [what, times] : others) {
    text += "\n  not there: " + std::to_string(times) + " x " + what;
  }
  return text;
}

}  // namespace bpo
