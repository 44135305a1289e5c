// The network between simulated devices: times of calls that share links, and groups whose calls
// take these times.
#include "backends/sim/wire.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backends/sim/sim_test.hpp"
#include "backplane/collective.h"

namespace bp::sim {
namespace {

using simulate::Call;
using simulate::CallKind;
using simulate::NetworkOptions;
using simulate::Shape;

Crossings crossings(Shape shape, double latency_s) {
  return Crossings(simulate::Network(
      NetworkOptions{.node_count = 4, .shape = shape, .bandwidth = 1e9, .latency_s = latency_s}));
}

Call send_of(double bytes) { return {.kind = CallKind::kSend, .bytes = bytes, .target = 1}; }

// Returns when the next call ends.
double end_of(Crossings& c) {
  for (double time = c.next(); time != simulate::kNever; time = c.next()) {
    if (!c.take(time).empty()) return time;
  }
  return simulate::kNever;
}

TEST(Crossings, TakeTheTimeOfARing) {
  Crossings c = crossings(Shape::kRing, 1e-6);
  c.add(10, {.kind = CallKind::kAllReduce, .bytes = 4e9}, {0, 1, 2, 3}, 7);
  EXPECT_NEAR(end_of(c), 10 + 2.0 * 3 / 4 * 4 + 6 * 1e-6, 1e-9);
  EXPECT_EQ(c.next(), simulate::kNever);
}

TEST(Crossings, OfOneLinkSlowEachOtherDown) {
  Crossings c = crossings(Shape::kSwitch, 0);
  c.add(0, send_of(1e9), {0, 1}, 1);
  EXPECT_DOUBLE_EQ(end_of(c), 1);
  c.add(1, send_of(1e9), {0, 1}, 2);  // Both end at rank 1.
  c.add(1, send_of(1e9), {2, 1}, 3);
  EXPECT_TRUE(c.take(2.9).empty());
  EXPECT_EQ(c.take(3.1).size(), 2u);
  c.add(4, send_of(1e9), {0, 1}, 4);  // They share no link.
  c.add(4, send_of(1e9), {2, 3}, 5);
  EXPECT_EQ(c.take(5.1).size(), 2u);
}

// What happened while nobody looked counts at the time at which it happened.
TEST(Crossings, DoNotEndLateBecauseTheyAreLookedAtLate) {
  Crossings c = crossings(Shape::kSwitch, 0.5);
  c.add(0, send_of(1e9), {0, 1}, 1);
  EXPECT_TRUE(c.take(1.4).empty());
  EXPECT_EQ(c.take(1.5 + 1e-9), std::vector<uint64_t>{1});
}

TEST(Crossings, KnowTheRanksInAnyOrder) {
  Crossings c = crossings(Shape::kRing, 1);
  c.add(0, send_of(0), {3, 1}, 1);  // Two links.
  EXPECT_DOUBLE_EQ(end_of(c), 2);
  c.add(2, send_of(0), {3, 0}, 2);  // One.
  EXPECT_DOUBLE_EQ(end_of(c), 3);
  EXPECT_THROW(c.add(3, send_of(0), {3, 4}, 3), simulate::NetworkError);
}

// ---- Groups -------------------------------------------------------------------------------------

// A file of a network, which the destructor removes.
class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("bp_wire_test_" + std::to_string(getpid()) + ".yaml")) {
    std::ofstream(path_) << text;
  }
  File(const File&) = delete;
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

// Two devices, a group of both, and a stream and a megabyte of each.
class Pair {
 public:
  static constexpr uint64_t kBytes = 1 << 20;

  explicit Pair(const std::string& network) : sim_({{"network", network}}) {
    const uint32_t ranks[] = {0, 1};
    const bp_process_group_desc desc{.struct_size = sizeof(desc),
                                     .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                     .devices = sim_.b.all_devices.data(),
                                     .ranks = ranks,
                                     .local_count = 2,
                                     .world_size = 2,
                                     .timeout_ns = 600'000'000'000};
    EXPECT_EQ(ops().create(ops().self, &desc, groups_), BP_OK) << sim_.b.text;
    for (size_t i = 0; i < 2; ++i) {
      streams_[i] = sim_.make_stream(i);
      buffers_[i] = sim_.make_buffer(kBytes, i);
    }
  }
  ~Pair() { destroy(); }

  void destroy() {
    for (bp_process_group*& group : groups_) {
      if (group != nullptr) ops().destroy(ops().self, group);
      group = nullptr;
    }
  }

  const bp_process_group_ops& ops() const { return *sim_.b.process_groups[0]; }
  Sim& sim() { return sim_; }
  bp_process_group* group() const { return groups_[0]; }

  // Lets both ranks sum up their memory.
  void all_reduce(uint64_t timeout_ns = 0) { ASSERT_EQ(submit(timeout_ns), BP_OK) << sim_.b.text; }
  bp_status submit(uint64_t timeout_ns) {
    bp_collective_call calls[2];
    for (size_t i = 0; i < 2; ++i) {
      calls[i] = {.struct_size = sizeof(bp_collective_call),
                  .struct_type = BP_STRUCT_COLLECTIVE_CALL,
                  .group = groups_[i],
                  .stream = streams_[i],
                  .send = {buffers_[i], 0, kBytes},
                  .receive = {buffers_[i], 0, kBytes},
                  .count = kBytes / 4,
                  .kind = BP_COLLECTIVE_ALL_REDUCE,
                  .reduction = BP_REDUCTION_SUM,
                  .dtype = BP_I32};
      calls[i].timeout_ns = timeout_ns;
    }
    return ops().submit(ops().self, 2, calls, sizeof(calls[0]));
  }
  bp_stream* stream(size_t i) const { return streams_[i]; }
  bp_status outcome(size_t i) { return sim_.synchronize(streams_[i]); }

 private:
  Sim sim_;
  bp_process_group* groups_[2] = {};
  bp_stream* streams_[2] = {};
  bp_buffer* buffers_[2] = {};
};

constexpr const char* kSlow = "nodes: 2\nnetwork: {shape: switch, bandwidth: 1}\n";  // 12 days.

TEST(Wire, CallsDoNotEndBeforeTheirTime) {
  const File file("nodes: 2\nnetwork: {shape: switch, bandwidth: 10485760}\n");
  Pair two(file.path());
  const auto begin = std::chrono::steady_clock::now();
  two.all_reduce();
  EXPECT_EQ(two.outcome(0), BP_OK) << two.sim().b.text;
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
  EXPECT_EQ(two.outcome(1), BP_OK) << two.sim().b.text;
}

TEST(Wire, ATimeoutEndsACallOnTheWay) {
  const File file(kSlow);
  Pair two(file.path());
  two.all_reduce(50'000'000);
  EXPECT_EQ(two.outcome(0), BP_TIMEOUT);
  EXPECT_NE(two.sim().b.text.find("waited 50 ms for its data to cross the network"),
            std::string::npos)
      << two.sim().b.text;
  EXPECT_EQ(two.outcome(1), BP_TIMEOUT);
}

TEST(Wire, AnAbortEndsACallOnTheWay) {
  const File file(kSlow);
  Pair two(file.path());
  two.all_reduce();
  EXPECT_EQ(two.ops().abort(two.ops().self, two.group()), BP_OK) << two.sim().b.text;
  EXPECT_EQ(two.outcome(0), BP_ABORTED);
  EXPECT_EQ(two.outcome(1), BP_ABORTED);
}

// The shutdown does not wait for calls that are on the way for days.
TEST(Wire, AnInstanceEndsWithCallsOnTheWay) {
  const File file(kSlow);
  Pair two(file.path());
  two.all_reduce();
  two.destroy();
  two.sim().b.shutdown();
}

// A graph would not have the call, which would have run at once.
TEST(Wire, ACallInACaptureIsRefused) {
  Pair two("");
  const bp_graph_ops& graphs = *two.sim().b.graphs;
  ASSERT_EQ(graphs.begin_capture(graphs.self, two.stream(1), nullptr), BP_OK) << two.sim().b.text;
  EXPECT_EQ(two.submit(0), BP_UNSUPPORTED);
  EXPECT_NE(two.sim().b.text.find("collectives are not recorded"), std::string::npos)
      << two.sim().b.text;
  bp_graph* graph = nullptr;
  ASSERT_EQ(graphs.end_capture(graphs.self, two.stream(1), &graph), BP_OK) << two.sim().b.text;
  graphs.destroy(graphs.self, graph);
  two.all_reduce();
  EXPECT_EQ(two.outcome(0), BP_OK) << two.sim().b.text;
}

std::string error_of(const std::string& network) {
  try {
    const Sim sim{{"network", network}};
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST(Wire, ABadFileIsNamedWithItsLine) {
  const File file("nodes: 2\nnetwork: {shape: star}\n");
  EXPECT_NE(
      error_of(file.path()).find("option network: " + file.path() + ":2: network.shape is star"),
      std::string::npos)
      << error_of(file.path());
  EXPECT_NE(error_of("no/such/file.yaml").find("option network: no/such/file.yaml"),
            std::string::npos);
}

TEST(Wire, AGroupNeedsAPlaceForEachDevice) {
  const File file("nodes: 2\nnetwork: {shape: switch, bandwidth: 1e9}\n");
  Sim sim{{"device_count", "3"}, {"network", file.path()}};
  const bp_process_group_ops& ops = *sim.b.process_groups[0];
  const uint32_t ranks[] = {0, 1, 2};
  const bp_process_group_desc desc{.struct_size = sizeof(desc),
                                   .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                   .devices = sim.b.all_devices.data(),
                                   .ranks = ranks,
                                   .local_count = 3,
                                   .world_size = 3};
  bp_process_group* groups[3] = {};
  EXPECT_EQ(ops.create(ops.self, &desc, groups), BP_INVALID_ARGUMENT);
  EXPECT_NE(sim.b.text.find("device 2 has no place in the network " + file.path()),
            std::string::npos)
      << sim.b.text;
}

}  // namespace
}  // namespace bp::sim
