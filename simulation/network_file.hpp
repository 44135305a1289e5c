// Networks and devices as YAML files:
//
//   nodes: 16
//   ranks_per_node: 8                # Default 1.
//   nics_per_node: 8                 # Default 1.
//   node: {bandwidth: 450e9, latency_s: 3e-6}
//   network:
//     shape: fat_tree                # ring, torus, switch, fat_tree or rails.
//     bandwidth: 50e9                # Bytes in a second of a NIC, in each direction.
//     latency_s: 5e-6
//     leaf_nodes: 4                  # fat_tree alone, as are the next two.
//     oversubscription: 2            # Default 1.
//     core_latency_s: 1e-6           # Default 0.
//     sizes: [4, 4]                  # torus alone.
//   device:                          # Needed for a step of a model.
//     flops: 900e12
//     efficiency: 0.5                # Default 1.
//     memory_bandwidth: 3.3e12
//     memory_bytes: 80e9             # Default: not stated, so everything fits.
//   slow_ranks: [{rank: 3, factor: 1.5}]
//   slow_links: [{node: 2, factor: 4}]   # Or with rank, or with node and to: see network.hpp.
//
// Errors: throws NetworkError, which names the file, the line, the key, what was given and what is
// allowed. Unknown keys are errors.
#pragma once

#include <optional>
#include <string>

#include "simulation/network.hpp"

namespace bp::simulate {

struct SimulatedDevice {
  double flops = 0;             // Operations in a second of products, at best.
  double efficiency = 1;        // The share of them that products reach; above 0, at most 1.
  double memory_bandwidth = 0;  // Bytes in a second.
  double memory_bytes = 0;      // 0: not stated; then everything fits.
};

struct Cluster {
  Network network;
  SimulatedDevice device;
};

// `name` stands for the text in errors. `node_count` replaces the number of nodes.
Cluster parse_cluster(const std::string& text, const std::string& name,
                      std::optional<uint32_t> node_count = {});
Cluster read_cluster(const std::string& path, std::optional<uint32_t> node_count = {});

}  // namespace bp::simulate
