// Links, routes, and how transfers share them.
#include "simulation/network.hpp"

#include <gtest/gtest.h>

#include <string>

#include "simulation/network_file.hpp"
#include "simulation/transfers.hpp"

namespace bp::simulate {
namespace {

// Returns when each transfer ends, by its tag. All begin at 0.
std::vector<double> ends_of(Transfers& transfers, size_t count) {
  std::vector<double> ends(count, -1);
  while (true) {
    const double time = transfers.next_end();
    if (time == kNever) return ends;
    std::vector<uint64_t> ended;
    transfers.end_next(ended);
    for (const uint64_t tag : ended) ends.at(tag) = time;
  }
}

TEST(Transfers, FlowsOnOneLinkShareItEqually) {
  for (const uint64_t count : {1u, 2u, 3u, 7u, 100u}) {
    Transfers transfers({1e9});
    for (uint64_t i = 0; i < count; ++i) {
      transfers.add(0, {.work = 1e6, .loads = {{0, 1}}, .tag = i});
    }
    for (const double end : ends_of(transfers, count)) {
      EXPECT_NEAR(end, 1e-3 * static_cast<double>(count), 1e-12);
    }
  }
}

TEST(Transfers, AFlowThatEndsLeavesItsShareToTheOthers) {
  Transfers transfers({100});
  transfers.add(0, {.work = 100, .loads = {{0, 1}}, .tag = 0});
  transfers.add(0, {.work = 200, .loads = {{0, 1}}, .tag = 1});
  const std::vector<double> ends = ends_of(transfers, 2);
  EXPECT_DOUBLE_EQ(ends[0], 2);  // 50 in a second.
  EXPECT_DOUBLE_EQ(ends[1], 3);  // 100 bytes until then, and 100 in a second after it.
}

TEST(Transfers, ALateFlowSlowsThoseThatRun) {
  Transfers transfers({100});
  transfers.add(0, {.work = 100, .loads = {{0, 1}}, .tag = 0});
  EXPECT_DOUBLE_EQ(transfers.next_end(), 1);
  transfers.add(0.5, {.work = 100, .loads = {{0, 1}}, .tag = 1});
  const std::vector<double> ends = ends_of(transfers, 2);
  EXPECT_DOUBLE_EQ(ends[0], 1.5);
  EXPECT_DOUBLE_EQ(ends[1], 2);
}

// Two flows of link 0, one of which is held back on link 1: the other one takes the rest.
TEST(Transfers, RatesAreMaxMinFair) {
  Transfers transfers({100, 20});
  transfers.add(0, {.work = 20, .loads = {{0, 1}, {1, 1}}, .tag = 0});
  transfers.add(0, {.work = 80, .loads = {{0, 1}}, .tag = 1});
  const std::vector<double> ends = ends_of(transfers, 2);
  EXPECT_DOUBLE_EQ(ends[0], 1);
  EXPECT_DOUBLE_EQ(ends[1], 1);
}

TEST(Transfers, GreatestRatesAreKept) {
  Transfers transfers({100});
  transfers.add(0, {.work = 1, .loads = {{0, 10}}, .weight = 0.5, .max_rate = 0.5, .tag = 0});
  transfers.add(0, {.work = 1, .loads = {{0, 80}}, .weight = 1, .max_rate = 1, .tag = 1});
  const std::vector<double> ends = ends_of(transfers, 2);
  EXPECT_DOUBLE_EQ(ends[0], 2);
  EXPECT_DOUBLE_EQ(ends[1], 1);
}

// Calls that need the whole link each take twice as long together.
TEST(Transfers, CallsOnAFullLinkAreSlowedByTheSameFactor) {
  Transfers transfers({100});
  transfers.add(0, {.work = 1, .loads = {{0, 100}}, .weight = 1, .max_rate = 1, .tag = 0});
  transfers.add(0, {.work = 1, .loads = {{0, 400}}, .weight = 0.25, .max_rate = 0.25, .tag = 1});
  const std::vector<double> ends = ends_of(transfers, 2);
  EXPECT_DOUBLE_EQ(ends[0], 2);
  EXPECT_DOUBLE_EQ(ends[1], 5);  // 300 of 400 bytes are left at 2.
}

TEST(Transfers, TransfersWithoutWorkEndAtOnce) {
  Transfers transfers({100});
  transfers.add(0, {.work = 0, .loads = {{0, 1}}, .tag = 0});
  EXPECT_DOUBLE_EQ(ends_of(transfers, 1)[0], 0);
}

NetworkOptions options_of(Shape shape, uint32_t nodes) {
  return {.node_count = nodes, .shape = shape, .bandwidth = 1e9, .latency_s = 1e-6};
}

size_t hops(const Network& network, uint32_t source, uint32_t target) {
  Route route;
  network.route(source, target, route);
  return route.links.size();
}

TEST(Network, ARingTakesTheShorterWay) {
  const Network ring(options_of(Shape::kRing, 8));
  EXPECT_EQ(hops(ring, 0, 1), 1u);
  EXPECT_EQ(hops(ring, 0, 4), 4u);
  EXPECT_EQ(hops(ring, 0, 5), 3u);
  EXPECT_EQ(hops(ring, 7, 0), 1u);
  EXPECT_EQ(hops(ring, 3, 3), 0u);
  Route there, back;
  ring.route(0, 7, there);
  ring.route(7, 0, back);
  EXPECT_NE(there.links, back.links);
}

TEST(Network, ATorusTakesTheShorterWayInEachDimension) {
  NetworkOptions options = options_of(Shape::kTorus, 4 * 3 * 2);
  options.sizes = {4, 3, 2};
  const Network torus(options);
  EXPECT_EQ(hops(torus, 0, 3), 1u);  // Around the first dimension.
  EXPECT_EQ(hops(torus, 0, 2), 2u);
  EXPECT_EQ(hops(torus, 0, 2 + 4 * 2 + 12 * 1), 2u + 1 + 1);
  Route route;
  torus.route(0, 2 + 4 * 2 + 12, route);
  EXPECT_DOUBLE_EQ(route.latency_s, 4e-6);
}

TEST(Network, RailsCrossInsideANode) {
  NetworkOptions options = options_of(Shape::kRails, 2);
  options.ranks_per_node = options.nics_per_node = 4;
  options.node_bandwidth = 1e10;
  const Network rails(options);
  EXPECT_EQ(hops(rails, 0, 4), 2u);      // The same rail.
  EXPECT_EQ(hops(rails, 0, 5), 2u + 2);  // To rank 1 first.
  EXPECT_EQ(hops(rails, 0, 1), 2u);
  options.shape = Shape::kSwitch;
  EXPECT_EQ(hops(Network(options), 0, 5), 2u);
}

TEST(Network, ALeafHasLinksForItsOversubscription) {
  NetworkOptions options = options_of(Shape::kFatTree, 6);
  options.leaf_nodes = 4;
  options.oversubscription = 2;
  options.core_latency_s = 5e-6;
  const Network tree(options);
  Route route;
  tree.route(0, 3, route);
  EXPECT_EQ(route.links.size(), 2u);
  tree.route(0, 4, route);
  ASSERT_EQ(route.links.size(), 4u);
  EXPECT_DOUBLE_EQ(route.latency_s, 6e-6);
  EXPECT_DOUBLE_EQ(tree.bandwidths()[route.links[1]], 4 * 1e9 / 2);
  EXPECT_DOUBLE_EQ(tree.bandwidths()[route.links[2]], 2 * 1e9 / 2);  // The last leaf has two nodes.
  EXPECT_EQ(tree.link_name(route.links[0]), "NIC 0 of node 0, out");
  EXPECT_EQ(tree.link_name(route.links[2]), "leaf 1, down");
}

TEST(Network, SlowLinksAreSlowInBothDirections) {
  NetworkOptions options = options_of(Shape::kRing, 4);
  options.slow_links = {{.node = 1, .to = 2, .factor = 4}};
  const Network ring(options);
  for (const auto& [source, target, bandwidth] :
       {std::tuple{1, 2, 0.25e9}, {2, 1, 0.25e9}, {0, 1, 1e9}, {2, 3, 1e9}}) {
    Route route;
    ring.route(static_cast<uint32_t>(source), static_cast<uint32_t>(target), route);
    EXPECT_DOUBLE_EQ(ring.bandwidths()[route.links[0]], bandwidth) << source;
  }
}

// ---- Files -------------------------------------------------------------------------------------

constexpr const char* kGood = R"(nodes: 4
ranks_per_node: 2
node: {bandwidth: 1e11, latency_s: 1e-6}
network:
  shape: fat_tree
  bandwidth: 1e10
  leaf_nodes: 2
device: {flops: 1e14, memory_bandwidth: 1e12}
slow_ranks:
  - {rank: 3, factor: 1.5}
slow_links:
  - {rank: 1, factor: 2}
  - {node: 2, factor: 3}
)";

TEST(NetworkFile, ReadsAllItsValues) {
  const Cluster cluster = parse_cluster(kGood, "good.yaml");
  EXPECT_EQ(cluster.network.rank_count(), 8u);
  EXPECT_DOUBLE_EQ(cluster.network.slowdown(3), 1.5);
  EXPECT_DOUBLE_EQ(cluster.network.slowdown(2), 1);
  EXPECT_DOUBLE_EQ(cluster.device.flops, 1e14);
  EXPECT_DOUBLE_EQ(cluster.device.efficiency, 1);
  EXPECT_EQ(parse_cluster(kGood, "good.yaml", 16).network.rank_count(), 32u);
}

// Replaces `from` in the good file, and expects an error with this text.
void expect_error(const std::string& from, const std::string& to, const std::string& error) {
  std::string text = kGood;
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  try {
    parse_cluster(text, "bad.yaml");
    ADD_FAILURE() << "no error for " << to;
  } catch (const NetworkError& e) {
    EXPECT_EQ(std::string(e.what()).substr(0, error.size()), error);
  }
}

TEST(NetworkFile, ErrorsNameTheLine) {
  expect_error("nodes: 4", "nodes: 0", "bad.yaml:1: nodes is 0; allowed: at least 1");
  expect_error("nodes: 4", "nodes: -4",
               "bad.yaml:1: nodes is -4; allowed: an integer from 0 to 1048576");
  expect_error("nodes: 4", "nodes: many", "bad.yaml:1: nodes is many; allowed: an integer");
  expect_error("nodes: 4", "notes: 4", "bad.yaml:1: the key \"notes\" is unknown; allowed: nodes");
  expect_error("ranks_per_node: 2", "nodes: 2", "bad.yaml:2: the key \"nodes\" is given twice");
  expect_error("1e11", "0", "bad.yaml:3: node.bandwidth is 0.000000; a node with several ranks");
  expect_error("1e11", ".nan", "bad.yaml:3: node.bandwidth is nan");
  expect_error("fat_tree", "star",
               "bad.yaml:5: network.shape is star; allowed: ring, torus, switch, fat_tree, rails");
  expect_error("fat_tree", "ring",
               "bad.yaml:7: network.leaf_nodes is for the shape fat_tree alone");
  expect_error("bandwidth: 1e10", "latency_s: 1e-6", "bad.yaml:4: network.bandwidth is 0.000000");
  expect_error("leaf_nodes: 2", "leaf_nodes: 0", "bad.yaml:7: network.leaf_nodes is 0");
  expect_error("leaf_nodes: 2", "oversubscription: 2", "bad.yaml:5: network has no leaf_nodes");
  expect_error("1e14", "-1", "bad.yaml:8: device.flops is -1.000000; allowed: above 0");
  expect_error("1.5", "0.5", "bad.yaml:9: slow_ranks has the factor 0.500000; allowed: at least 1");
  expect_error("rank: 3", "rank: 8", "bad.yaml:9: slow_ranks has the rank 8; allowed: 0 to 7");
  expect_error("rank: 3, ", "", "bad.yaml:10: a slow rank has no rank");
  expect_error("{rank: 1", "{rank: 1, node: 1", "bad.yaml:11: slow_links has an entry with both");
  expect_error("{node: 2", "{node: 2, to: 3", "bad.yaml:11: slow_links has node 2 to 3; allowed");
  expect_error("latency_s: 1e-6}", "latency_s: 1e-6", "bad.yaml:");
  expect_error("slow_ranks:\n  - {", "slow_ranks:\n    {", "bad.yaml:10: slow_ranks is not a list");
}

TEST(NetworkFile, NamesAFileThatIsMissing) {
  EXPECT_THROW(read_cluster("no/such/file.yaml"), NetworkError);
}

}  // namespace
}  // namespace bp::simulate
