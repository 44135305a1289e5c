// Divides the nodes of a program into convex partitions, for compilers that do not take all nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/shell/program.hpp"

namespace bp {

struct Partitions {
  std::vector<uint32_t> of_node;  // BP_NO_PARTITION for a node that is not taken.
  uint64_t count = 0;
};

// Returns the partitions of the nodes that are taken, as [COMPILER-3] says. is_taken has an entry
// for each node. A node is in the first partition that does not run before a node that the node
// waits for.
Partitions partition_nodes(const Program& program, const std::vector<bool>& is_taken);

}  // namespace bp
