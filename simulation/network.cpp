#include "simulation/network.hpp"

#include <algorithm>
#include <limits>

namespace bp::simulate {
namespace {

// Of links that no message uses, such as the port of a rank that is alone on its node.
constexpr double kPortless = std::numeric_limits<double>::max();
constexpr double kNever = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse(const char* key, const std::string& what) {
  throw NetworkError(key, std::string(key) + " " + what);
}

// A NaN fails as well.
void need_positive(const char* key, double value, const char* when) {
  if (value > 0 && value < kNever) return;
  refuse(key, "is " + std::to_string(value) + "; " + when + " needs a finite value above 0");
}

void need_latency(const char* key, double value) {
  if (value >= 0 && value < kNever) return;
  refuse(key, "is " + std::to_string(value) + "; allowed: at least 0");
}

void need_factor(const char* key, double value) {
  if (value >= 1 && value < kNever) return;
  refuse(key, "has the factor " + std::to_string(value) + "; allowed: at least 1");
}

void need_below(const char* key, const char* what, uint32_t value, uint32_t count) {
  if (value < count) return;
  refuse(key, std::string("has the ") + what + " " + std::to_string(value) + "; allowed: 0 to " +
                  std::to_string(count - 1));
}

void need_count(const char* key, uint32_t value) {
  if (value == 0) refuse(key, "is 0; allowed: at least 1");
}

}  // namespace

Network::Network(NetworkOptions options) : o_(std::move(options)) {
  if (o_.shape == Shape::kRing) o_.sizes = {o_.node_count};
  check();
  make_links();
  slowdowns_.assign(rank_count(), 1);
  for (const SlowRank& slow : o_.slow_ranks) slowdowns_[slow.rank] *= slow.factor;
  for (const SlowLink& slow : o_.slow_links) slow_down(slow);
}

void Network::check() const {
  constexpr uint32_t kMostRanks = 1 << 20;
  need_count("nodes", o_.node_count);
  need_count("ranks_per_node", o_.ranks_per_node);
  need_count("nics_per_node", o_.nics_per_node);
  if (uint64_t{o_.node_count} * o_.ranks_per_node > kMostRanks) {
    refuse("nodes", "* ranks_per_node is above 1048576, which is the greatest number of ranks");
  }
  if (o_.nics_per_node > o_.ranks_per_node) {
    refuse("nics_per_node", "is " + std::to_string(o_.nics_per_node) +
                                "; allowed: at most ranks_per_node, which is " +
                                std::to_string(o_.ranks_per_node));
  }
  if (o_.ranks_per_node > 1) {
    need_positive("node.bandwidth", o_.node_bandwidth, "a node with several ranks");
  }
  if (o_.node_count > 1) {
    need_positive("network.bandwidth", o_.bandwidth, "a network of several nodes");
  }
  need_latency("node.latency_s", o_.node_latency_s);
  need_latency("network.latency_s", o_.latency_s);
  need_latency("network.core_latency_s", o_.core_latency_s);
  check_shape();
  check_stragglers();
}

void Network::check_shape() const {
  if (o_.shape == Shape::kFatTree) {
    need_factor("network.oversubscription", o_.oversubscription);
    need_count("network.leaf_nodes", o_.leaf_nodes);
  }
  if (o_.shape != Shape::kTorus) return;
  if (o_.sizes.size() != 2 && o_.sizes.size() != 3) {
    refuse("network.sizes", "has " + std::to_string(o_.sizes.size()) + " numbers; allowed: 2, 3");
  }
  uint64_t product = 1;
  for (const uint32_t size : o_.sizes) product *= size;
  if (product != o_.node_count) {
    refuse("network.sizes", "has the product " + std::to_string(product) + ", and there are " +
                                std::to_string(o_.node_count) + " nodes; they must be equal");
  }
}

void Network::check_stragglers() const {
  for (const SlowRank& slow : o_.slow_ranks) {
    need_below("slow_ranks", "rank", slow.rank, rank_count());
    need_factor("slow_ranks", slow.factor);
  }
  for (const SlowLink& slow : o_.slow_links) {
    if (slow.rank.has_value() == slow.node.has_value()) {
      refuse("slow_links", "has an entry with both or neither of rank and node; allowed: one");
    }
    need_below("slow_links", "rank", slow.rank.value_or(0), rank_count());
    need_below("slow_links", "node", slow.node.value_or(0), o_.node_count);
    need_factor("slow_links", slow.factor);
  }
}

// Links are, in this order: two ports of each rank; then for grids two links of each node in each
// dimension, and for the other shapes two ports of each NIC; then two links of each leaf.
void Network::make_links() {
  bandwidths_.assign(size_t{rank_count()} * 2,
                     o_.node_bandwidth > 0 ? o_.node_bandwidth : kPortless);
  first_nic_ = static_cast<uint32_t>(bandwidths_.size());
  const size_t of_node = is_grid() ? o_.sizes.size() : o_.nics_per_node;
  const double bandwidth = o_.bandwidth > 0 ? o_.bandwidth : kPortless;
  bandwidths_.resize(bandwidths_.size() + o_.node_count * of_node * 2, bandwidth);
  first_leaf_ = static_cast<uint32_t>(bandwidths_.size());
  if (o_.shape != Shape::kFatTree) return;
  for (uint32_t first = 0; first < o_.node_count; first += o_.leaf_nodes) {
    const uint32_t nodes = std::min(o_.leaf_nodes, o_.node_count - first);
    const double up = bandwidth * nodes * o_.nics_per_node / o_.oversubscription;
    bandwidths_.insert(bandwidths_.end(), {up, up});
  }
}

void Network::slow_down(const SlowLink& slow) {
  if (slow.rank) {
    for (const bool is_in : {false, true}) slow_link(port(*slow.rank, is_in), slow.factor);
    return;
  }
  bool is_found = false;
  const uint32_t node = *slow.node;
  for (size_t i = 0; i < (is_grid() ? o_.sizes.size() : o_.nics_per_node); ++i) {
    for (const bool second : {false, true}) {
      if (!is_grid() && !slow.to) {
        slow_link(nic(node, static_cast<uint32_t>(i), second), slow.factor);
        continue;
      }
      if (!is_grid()) continue;
      const uint32_t other = neighbour(node, i, second);
      if (slow.to && other != *slow.to) continue;
      is_found = true;
      slow_link(grid_link(node, i, second), slow.factor);
      slow_link(grid_link(other, i, !second), slow.factor);
    }
  }
  if (slow.to && !is_found) {
    refuse("slow_links", "has node " + std::to_string(node) + " to " + std::to_string(*slow.to) +
                             "; allowed: neighbours on a ring or a torus");
  }
}

uint32_t Network::nic_of(uint32_t rank) const {
  return rank % o_.ranks_per_node * o_.nics_per_node / o_.ranks_per_node;
}

uint32_t Network::nic(uint32_t node, uint32_t which, bool is_in) const {
  return first_nic_ + (node * o_.nics_per_node + which) * 2 + (is_in ? 1 : 0);
}

uint32_t Network::leaf(uint32_t node, bool is_down) const {
  return first_leaf_ + node / o_.leaf_nodes * 2 + (is_down ? 1 : 0);
}

uint32_t Network::grid_link(uint32_t node, size_t dimension, bool is_back) const {
  const auto count = static_cast<uint32_t>(o_.sizes.size());
  return first_nic_ + (node * count + static_cast<uint32_t>(dimension)) * 2 + (is_back ? 1 : 0);
}

uint32_t Network::neighbour(uint32_t node, size_t dimension, bool is_back) const {
  uint32_t stride = 1;
  for (size_t i = 0; i < dimension; ++i) stride *= o_.sizes[i];
  const uint32_t size = o_.sizes[dimension], place = node / stride % size;
  const uint32_t next = (place + (is_back ? size - 1 : 1)) % size;
  return node - place * stride + next * stride;
}

void Network::route_inside(uint32_t source, uint32_t target, Route& route) const {
  route.links.insert(route.links.end(), {port(source, false), port(target, true)});
  route.latency_s += o_.node_latency_s;
}

void Network::route_by_switch(uint32_t source, uint32_t target, Route& route) const {
  const uint32_t from = node_of(source), to = node_of(target), last = nic_of(target);
  uint32_t first = nic_of(source);
  if (o_.shape == Shape::kRails && first != last) {
    // The first rank of the source's node that has the NIC of the target.
    const uint32_t place = (last * o_.ranks_per_node + o_.nics_per_node - 1) / o_.nics_per_node;
    route_inside(source, from * o_.ranks_per_node + place, route);
    first = last;
  }
  route.links.push_back(nic(from, first, false));
  if (o_.shape == Shape::kFatTree && from / o_.leaf_nodes != to / o_.leaf_nodes) {
    route.links.insert(route.links.end(), {leaf(from, false), leaf(to, true)});
    route.latency_s += o_.core_latency_s;
  }
  route.links.push_back(nic(to, last, true));
  route.latency_s += o_.latency_s;
}

void Network::route_on_grid(uint32_t node, uint32_t target, Route& route) const {
  uint32_t stride = 1;
  for (size_t i = 0; i < o_.sizes.size(); ++i) {
    const uint32_t size = o_.sizes[i];
    const uint32_t ahead = (target / stride % size + size - node / stride % size) % size;
    const bool is_back = ahead > size / 2;
    for (uint32_t step = 0; step < (is_back ? size - ahead : ahead); ++step) {
      route.links.push_back(grid_link(node, i, is_back));
      route.latency_s += o_.latency_s;
      node = neighbour(node, i, is_back);
    }
    stride *= size;
  }
}

void Network::route(uint32_t source, uint32_t target, Route& route) const {
  if (source >= rank_count() || target >= rank_count()) {
    throw NetworkError("", "a message goes from rank " + std::to_string(source) + " to rank " +
                               std::to_string(target) + ", and the network has " +
                               std::to_string(rank_count()) + " ranks");
  }
  route.links.clear();
  route.latency_s = 0;
  if (source == target) return;
  if (node_of(source) == node_of(target)) return route_inside(source, target, route);
  if (is_grid()) return route_on_grid(node_of(source), node_of(target), route);
  route_by_switch(source, target, route);
}

std::string Network::link_name(uint32_t link) const {
  const auto with = [](const char* what, uint32_t number) { return what + std::to_string(number); };
  if (link < first_nic_) {
    return with("port of rank ", link / 2) + (link % 2 == 0 ? ", out" : ", in");
  }
  if (link >= first_leaf_) {
    return with("leaf ", (link - first_leaf_) / 2) + (link % 2 == 0 ? ", up" : ", down");
  }
  const uint32_t place = (link - first_nic_) / 2;
  const auto of_node = static_cast<uint32_t>(is_grid() ? o_.sizes.size() : o_.nics_per_node);
  const std::string node = with(" of node ", place / of_node);
  if (!is_grid()) return with("NIC ", place % of_node) + node + (link % 2 == 0 ? ", out" : ", in");
  return with("link ", place % of_node) + node + (link % 2 == 0 ? ", ahead" : ", back");
}

}  // namespace bp::simulate
