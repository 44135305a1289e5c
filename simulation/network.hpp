// A simulated network: nodes with several ranks, and links between them.
//
// Inside a node each rank has a port of `node_bandwidth` in each direction to a switch that never
// blocks. Between nodes a network has one of these shapes:
//
//   ring      Each node has a link to each of two neighbours. A message takes the shorter way.
//   torus     The same in two or three dimensions, one dimension after the other.
//   switch    Each NIC of a node has a port to one switch that never blocks.
//   fat_tree  Two levels: `leaf_nodes` nodes share a leaf switch. All links of a leaf to the upper
//             level count as one link, with the bandwidth of its nodes divided by
//             `oversubscription`: messages are spread over these links evenly.
//   rails     NIC k of each node has a port to switch k. A message to a rank with another NIC goes
//             first inside its node to the rank that has this NIC.
//
// Rank r is on node r / ranks_per_node, and has NIC (r % ranks_per_node) * nics_per_node /
// ranks_per_node. All links have two directions, which share nothing. A message takes
//   latency of its route + bytes / rate,
// and its rate is that of Transfers.
//
// Threads    A Network never changes, so any number of threads can use it.
// Errors     The constructor throws NetworkError, which names the value and what is allowed.
// route()
//            throws it for ranks that do not exist.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace bp::simulate {

enum class Shape { kRing, kTorus, kSwitch, kFatTree, kRails };

struct SlowRank {
  uint32_t rank = 0;
  double factor = 1;  // Its computing takes `factor` times as long. At least 1.
};

// Links that have 1 / factor of their bandwidth.
struct SlowLink {
  std::optional<uint32_t> rank;  // The ports of a rank inside its node. Or:
  std::optional<uint32_t> node;  // All links of a node to the network, or
  std::optional<uint32_t> to;    // only those between `node` and its neighbour `to`.
  double factor = 1;             // At least 1.
};

struct NetworkOptions {
  uint32_t node_count = 1, ranks_per_node = 1, nics_per_node = 1;
  double node_bandwidth = 0;  // Bytes in a second, above 0 if nodes have several ranks.
  double node_latency_s = 0;
  Shape shape = Shape::kSwitch;
  double bandwidth = 0;  // Of a NIC, or of a link of a ring or torus; above 0 with several nodes.
  double latency_s = 0;  // Of the way from node to node; for rings and tori of each link.
  uint32_t leaf_nodes = 1;      // fat_tree.
  double oversubscription = 1;  // fat_tree; at least 1.
  double core_latency_s = 0;    // fat_tree: what a way through the upper level takes besides.
  std::vector<uint32_t> sizes;  // torus: two or three, whose product is node_count.
  std::vector<SlowRank> slow_ranks;
  std::vector<SlowLink> slow_links;
};

// A network, a file or a call is not valid.
class NetworkError : public std::runtime_error {
 public:
  NetworkError(std::string key, const std::string& what)
      : std::runtime_error(what), key_(std::move(key)) {}
  // The key of the value in a file, such as "network.bandwidth": see network_file.hpp. "" if no
  // value of a file is wrong.
  const std::string& key() const { return key_; }

 private:
  std::string key_;
};

struct Route {
  std::vector<uint32_t> links;
  double latency_s = 0;
};

class Network {
 public:
  explicit Network(NetworkOptions options);

  const NetworkOptions& options() const { return o_; }
  uint32_t rank_count() const { return o_.node_count * o_.ranks_per_node; }
  uint32_t node_of(uint32_t rank) const { return rank / o_.ranks_per_node; }

  // Bytes in a second of each link.
  const std::vector<double>& bandwidths() const { return bandwidths_; }

  // Returns a name like "NIC 0 of node 3, out".
  std::string link_name(uint32_t link) const;

  // Fills `route`. The way from a rank to itself has no links.
  void route(uint32_t source, uint32_t target, Route& route) const;

  // How many times as long the computing of a rank takes.
  double slowdown(uint32_t rank) const { return slowdowns_[rank]; }
  bool has_stragglers() const { return !o_.slow_ranks.empty() || !o_.slow_links.empty(); }

 private:
  void check() const;
  void check_shape() const;
  void check_stragglers() const;
  void make_links();
  void slow_down(const SlowLink& slow);
  void slow_link(uint32_t link, double factor) { bandwidths_[link] /= factor; }
  bool is_grid() const { return o_.shape == Shape::kRing || o_.shape == Shape::kTorus; }
  uint32_t nic_of(uint32_t rank) const;
  uint32_t port(uint32_t rank, bool is_in) const { return rank * 2 + (is_in ? 1 : 0); }
  uint32_t nic(uint32_t node, uint32_t which, bool is_in) const;
  uint32_t leaf(uint32_t node, bool is_down) const;
  uint32_t grid_link(uint32_t node, size_t dimension, bool is_back) const;
  uint32_t neighbour(uint32_t node, size_t dimension, bool is_back) const;
  void route_inside(uint32_t source, uint32_t target, Route& route) const;
  void route_by_switch(uint32_t source, uint32_t target, Route& route) const;
  void route_on_grid(uint32_t node, uint32_t target, Route& route) const;

  NetworkOptions o_;
  std::vector<double> bandwidths_, slowdowns_;
  uint32_t first_nic_ = 0, first_leaf_ = 0;  // The first links of their kinds.
};

}  // namespace bp::simulate
