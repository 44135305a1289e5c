// Which nodes of a graph form partitions.
#pragma once

#include <string>
#include <vector>

#include "graph.hpp"
#include "trial.hpp"

namespace bpo {

// The partitions of a graph: numbers of nodes that the device runs. No path between two nodes of a
// partition leads through a node outside of it, so that it can be fused.
std::vector<std::vector<size_t>> make_partitions(const std::vector<GraphNode>& nodes,
                                                 const std::vector<Verdict>& verdicts);

// Says in one line how many nodes run where, and why.
std::string describe(const std::string& device, const std::vector<GraphNode>& nodes,
                     const std::vector<Verdict>& verdicts, size_t partition_count);

}  // namespace bpo
