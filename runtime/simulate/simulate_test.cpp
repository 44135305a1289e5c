// Calls and schedules: closed forms, and costs against all messages.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/report.hpp"
#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {
namespace {

constexpr double kBandwidth = 1e9, kLatency = 1e-5;

NetworkOptions options_of(Shape shape, uint32_t nodes) {
  NetworkOptions options{
      .node_count = nodes, .shape = shape, .bandwidth = kBandwidth, .latency_s = kLatency};
  if (shape == Shape::kFatTree) options.leaf_nodes = 4;
  return options;
}

NetworkOptions with_nodes_of(NetworkOptions options, uint32_t ranks) {
  options.ranks_per_node = options.nics_per_node = ranks;
  options.node_bandwidth = 8 * kBandwidth;
  options.node_latency_s = kLatency / 8;
  return options;
}

std::vector<uint32_t> all_ranks(const Network& network) {
  std::vector<uint32_t> ranks(network.rank_count());
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

// All ranks compute for `seconds`, and then make the calls, each after the one before.
Schedule schedule_of(const Network& network, const std::vector<Call>& calls, double seconds = 0) {
  Schedule schedule{.streams = {"compute", "calls"}, .labels = {"work"}};
  schedule.groups.push_back({all_ranks(network), {}});
  Program program;
  program.operations.push_back({.seconds = seconds});
  for (const Call& call : calls) {
    program.operations.push_back({.kind = OperationKind::kCall,
                                  .stream = 1,
                                  .call = call.kind,
                                  .peer = call.source,
                                  .bytes = call.bytes,
                                  .after = {0}});
  }
  schedule.programs.push_back(program);
  for (const uint32_t rank : all_ranks(network)) schedule.ranks.push_back({rank, 0, {0}});
  return schedule;
}

double seconds_of(const Network& network, const Call& call, Fidelity fidelity) {
  return simulate(schedule_of(network, {call}), network, fidelity).step_seconds;
}

TEST(Calls, ARingAllReduceOnARingHasItsClosedForm) {
  for (const uint32_t n : {2U, 3U, 5U, 8U, 12U}) {
    const Network network(options_of(Shape::kRing, n));
    const double bytes = 1e8;  // So much that the ring is the best plan.
    const double expected = 2.0 * (n - 1) / n * bytes / kBandwidth + 2.0 * (n - 1) * kLatency;
    const Call call{CallKind::kAllReduce, bytes};
    EXPECT_NEAR(seconds_of(network, call, Fidelity::kMessages), expected, 1e-9) << n;
    EXPECT_NEAR(seconds_of(network, call, Fidelity::kCosts), expected, 1e-9) << n;
    const Call half{CallKind::kReduceScatter, bytes};
    EXPECT_NEAR(seconds_of(network, half, Fidelity::kMessages), expected / 2, 1e-9) << n;
  }
}

// What each member has heard of after all rounds, if a message tells all that its sender knows at
// the begin of the round. Adds up the bytes.
std::vector<std::set<uint32_t>> heard_by(const Plan& plan, uint32_t n, double& bytes) {
  std::vector<std::set<uint32_t>> heard(n);
  for (uint32_t i = 0; i < n; ++i) heard[i] = {i};
  for (const Round& round : plan.rounds) {
    for (uint32_t repeat = 0; repeat < round.repeat; ++repeat) {
      const std::vector<std::set<uint32_t>> before = heard;
      for (const Message& message : round.messages) {
        heard[message.target].insert(before[message.source].begin(), before[message.source].end());
        bytes += message.bytes;
      }
    }
  }
  return heard;
}

// 5 members on a node each, 8 on a node each, 4 on each of 4 nodes, and 3 uneven nodes.
std::vector<std::vector<uint32_t>> some_nodes() {
  return {{0, 1, 2, 3, 4},
          {0, 1, 2, 3, 4, 5, 6, 7},
          {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
          {0, 0, 0, 1, 1, 2}};
}

TEST(Plans, EveryMemberHearsFromAllOthers) {
  for (const auto& nodes : some_nodes()) {
    const auto n = static_cast<uint32_t>(nodes.size());
    for (const CallKind kind :
         {CallKind::kAllReduce, CallKind::kAllGather, CallKind::kReduceScatter, CallKind::kAllToAll,
          CallKind::kBarrier}) {
      for (const Plan& plan : make_plans({kind, 1.0 * n}, nodes)) {
        double bytes = 0;
        for (const auto& heard : heard_by(plan, n, bytes)) {
          EXPECT_EQ(heard.size(), n) << call_name(kind) << ' ' << plan.algorithm;
        }
      }
    }
  }
}

TEST(Plans, RootsAreHeardByAllOrHearAll) {
  for (const auto& nodes : some_nodes()) {
    const auto n = static_cast<uint32_t>(nodes.size());
    for (uint32_t root = 0; root < n; ++root) {
      double bytes = 0;
      for (const CallKind kind : {CallKind::kBroadcast, CallKind::kScatter}) {
        for (const auto& heard : heard_by(make_plans({kind, 1, root}, nodes)[0], n, bytes)) {
          EXPECT_TRUE(heard.contains(root)) << call_name(kind);
        }
      }
      for (const CallKind kind : {CallKind::kReduce, CallKind::kGather}) {
        EXPECT_EQ(heard_by(make_plans({kind, 1, root}, nodes)[0], n, bytes)[root].size(), n);
      }
    }
  }
}

// All plans move the least that is possible: (n - 1) M for a gather or a reduction, and twice as
// much for an all-reduce. They differ in how much of it goes at the same time.
TEST(Plans, MoveTheLeastBytes) {
  for (const auto& nodes : some_nodes()) {
    const auto n = static_cast<uint32_t>(nodes.size());
    for (const CallKind kind :
         {CallKind::kAllReduce, CallKind::kAllGather, CallKind::kReduceScatter}) {
      for (const Plan& plan : make_plans({kind, 64}, nodes)) {
        double bytes = 0;
        heard_by(plan, n, bytes);
        const double least = 64.0 * (n - 1) * (kind == CallKind::kAllReduce ? 2 : 1);
        if (std::string(plan.algorithm) == "hierarchical_tree")
          continue;  // Parts move log n times.
        EXPECT_NEAR(bytes, least, 1e-9) << call_name(kind) << ' ' << plan.algorithm;
      }
    }
  }
}

TEST(Calls, SmallAllReducesTakeFewRounds) {
  const Network network(options_of(Shape::kSwitch, 16));
  Costs costs(network);
  const Group group{all_ranks(network), {}};
  const auto algorithm = [&](double bytes) {
    return std::string(costs.plan({CallKind::kAllReduce, bytes}, group).algorithm);
  };
  EXPECT_EQ(algorithm(8), "halving_doubling");
  EXPECT_DOUBLE_EQ(costs.cost({CallKind::kAllReduce, 0}, group).seconds(), 8 * kLatency);
  // Exchanges over a distance share links of a ring, and neighbours do not.
  const Network ring(options_of(Shape::kRing, 16));
  Costs of_ring(ring);
  EXPECT_STREQ(of_ring.plan({CallKind::kAllReduce, 1e8}, group).algorithm, "ring");
  // Without a power of two a tree is the way with few rounds.
  const Network twelve(options_of(Shape::kSwitch, 12));
  Costs of_twelve(twelve);
  const Group all{all_ranks(twelve), {}};
  EXPECT_STREQ(of_twelve.plan({CallKind::kAllReduce, 8}, all).algorithm, "tree");
  EXPECT_STREQ(of_twelve.plan({CallKind::kAllReduce, 1e8}, all).algorithm, "ring");
}

TEST(Calls, GroupsOfWholeNodesUseAllTheirNics) {
  const Network network(with_nodes_of(options_of(Shape::kRails, 4), 4));
  Costs costs(network);
  const Group group{all_ranks(network), {}};
  const Call call{CallKind::kAllReduce, 1e9};
  EXPECT_TRUE(std::string(costs.plan(call, group).algorithm).starts_with("hierarchical"));
  // Twice 3/4 of the bytes inside, and twice 3/4 of a quarter between nodes.
  const double inside = 1.5 * 1e9 / (8 * kBandwidth), between = 1.5 * 0.25e9 / kBandwidth;
  EXPECT_NEAR(costs.cost(call, group).transfer_s, inside + between, 1e-9);
}

TEST(Calls, PairwiseAllToAllHasItsClosedForm) {
  const Network network(options_of(Shape::kSwitch, 6));
  const double expected = 5 * (1e6 / 6 / kBandwidth + kLatency);
  for (const Fidelity fidelity : {Fidelity::kCosts, Fidelity::kMessages}) {
    EXPECT_NEAR(seconds_of(network, {CallKind::kAllToAll, 1e6}, fidelity), expected, 1e-12);
  }
}

TEST(Calls, AFatTreeWithoutOversubscriptionIsASwitch) {
  const Network tree(options_of(Shape::kFatTree, 8)), flat(options_of(Shape::kSwitch, 8));
  NetworkOptions narrow_options = options_of(Shape::kFatTree, 8);
  narrow_options.oversubscription = 4;
  const Network narrow(narrow_options);
  for (const CallKind kind : {CallKind::kAllReduce, CallKind::kAllGather, CallKind::kAllToAll,
                              CallKind::kBroadcast, CallKind::kGather}) {
    for (const Fidelity fidelity : {Fidelity::kCosts, Fidelity::kMessages}) {
      const Call call{kind, 1e7};
      EXPECT_NEAR(seconds_of(tree, call, fidelity), seconds_of(flat, call, fidelity), 1e-12)
          << call_name(kind);
    }
  }
  // All-to-all moves half of its bytes over the upper level.
  const Call call{CallKind::kAllToAll, 1e7};
  EXPECT_GT(seconds_of(narrow, call, Fidelity::kMessages),
            1.5 * seconds_of(flat, call, Fidelity::kMessages));
}

struct Case {
  const char* name;
  NetworkOptions options;
};

std::vector<Case> symmetric_networks() {
  NetworkOptions torus = options_of(Shape::kTorus, 16);
  torus.sizes = {4, 4};
  NetworkOptions tree = options_of(Shape::kFatTree, 8);
  tree.oversubscription = 2;
  return {{"ring", options_of(Shape::kRing, 8)},
          {"switch", options_of(Shape::kSwitch, 16)},
          {"torus", torus},
          {"fat tree", tree},
          {"rails", with_nodes_of(options_of(Shape::kRails, 4), 4)},
          {"nodes", with_nodes_of(options_of(Shape::kSwitch, 2), 8)}};
}

// The cost of a call is at least the time of its messages, and exceeds it by little. All-to-all is
// the exception that costs.hpp names.
TEST(Calls, CostsAgreeWithAllMessages) {
  for (const Case& each : symmetric_networks()) {
    const Network network(each.options);
    for (const CallKind kind :
         {CallKind::kAllReduce, CallKind::kAllGather, CallKind::kReduceScatter, CallKind::kAllToAll,
          CallKind::kBroadcast, CallKind::kReduce, CallKind::kBarrier}) {
      for (const double bytes : {1e3, 1e6, 1e8}) {
        const double costs = seconds_of(network, {kind, bytes}, Fidelity::kCosts);
        const double messages = seconds_of(network, {kind, bytes}, Fidelity::kMessages);
        const double most = kind == CallKind::kAllToAll ? 1.4 : 1 + 1e-9;
        EXPECT_LE(messages, costs * most) << each.name << ' ' << call_name(kind);
        EXPECT_GE(messages, costs * 0.8) << each.name << ' ' << call_name(kind) << ' ' << bytes;
      }
    }
  }
}

TEST(Calls, CostsAreExactForRingsAndExchangesOnASwitch) {
  const Network network(options_of(Shape::kSwitch, 16));
  for (const CallKind kind :
       {CallKind::kAllReduce, CallKind::kAllGather, CallKind::kReduceScatter}) {
    for (const double bytes : {1e3, 1e5, 1e8}) {
      EXPECT_NEAR(seconds_of(network, {kind, bytes}, Fidelity::kCosts),
                  seconds_of(network, {kind, bytes}, Fidelity::kMessages), 1e-9);
    }
  }
}

TEST(Calls, ASlowLinkSlowsTheRingByItsFactor) {
  NetworkOptions options = options_of(Shape::kRing, 6);
  options.slow_links = {{.node = 2, .to = 3, .factor = 5}};
  options.latency_s = 0;
  const Network slow(options);
  options.slow_links.clear();
  const Call call{CallKind::kAllReduce, 1e8};
  const double usual = seconds_of(Network(options), call, Fidelity::kMessages);
  EXPECT_NEAR(seconds_of(slow, call, Fidelity::kCosts), 5 * usual, 1e-6);
  EXPECT_NEAR(seconds_of(slow, call, Fidelity::kMessages), 5 * usual, usual);
}

TEST(Schedules, AStragglerDelaysAllRanksOfACall) {
  NetworkOptions options = options_of(Shape::kSwitch, 4);
  options.slow_ranks = {{.rank = 2, .factor = 3}};
  const Network network(options);
  const Schedule schedule = schedule_of(network, {{CallKind::kAllReduce, 1e6}}, 0.5);
  for (const Fidelity fidelity : {Fidelity::kCosts, Fidelity::kMessages}) {
    const Timeline timeline = simulate(schedule, network, fidelity);
    EXPECT_DOUBLE_EQ(timeline.ranks[0][0].end, 0.5);
    EXPECT_DOUBLE_EQ(timeline.ranks[2][0].end, 1.5);
    EXPECT_DOUBLE_EQ(timeline.ranks[0][1].begin, 1.5);
    const std::vector<RankTimes> times = times_of(schedule, timeline);
    EXPECT_NEAR(times[0].idle_s, 1, 1e-9);
    EXPECT_NEAR(times[2].idle_s, 0, 1e-9);
  }
}

// A call of 1 s begins behind 1 s of computing, and 0.4 s of computing run beside it.
TEST(Schedules, OverlapIsWhatComputingHides) {
  NetworkOptions options = options_of(Shape::kSwitch, 2);
  options.latency_s = 0;
  const Network network(options);
  Schedule schedule = schedule_of(network, {{CallKind::kAllReduce, kBandwidth}}, 1);
  schedule.programs[0].operations.push_back({.seconds = 0.4});
  for (const Fidelity fidelity : {Fidelity::kCosts, Fidelity::kMessages}) {
    const Report report = report_of(schedule, simulate(schedule, network, fidelity));
    EXPECT_NEAR(report.step_s, 2, 1e-9);
    EXPECT_NEAR(report.compute_s, 1.4, 1e-9);
    EXPECT_NEAR(report.communication_s, 1, 1e-9);
    EXPECT_NEAR(report.exposed_s, 0.6, 1e-9);
    EXPECT_NEAR(report.overlap(), 0.4, 1e-9);
  }
}

// Two calls on streams of their own take as long together as one after the other.
TEST(Schedules, CallsShareLinks) {
  NetworkOptions options = options_of(Shape::kSwitch, 4);
  options.latency_s = 0;
  const Network network(options);
  Schedule schedule = schedule_of(network, {{CallKind::kAllReduce, 1e8}});
  const double alone = simulate(schedule, network).step_seconds;
  schedule.groups.push_back(schedule.groups[0]);
  for (SimulatedRank& rank : schedule.ranks) rank.groups.push_back(1);
  Operation second = schedule.programs[0].operations[1];
  second.stream = 2;
  second.axis = 1;
  schedule.programs[0].operations.push_back(second);
  EXPECT_NEAR(simulate(schedule, network).step_seconds, 2 * alone, 1e-9);
  EXPECT_NEAR(simulate(schedule, network, Fidelity::kMessages).step_seconds, 2 * alone, 1e-9);
}

// Rank 0 sends to rank 1, which computes first.
Schedule send_and_receive() {
  Schedule schedule{.streams = {"compute"}, .labels = {"work"}};
  schedule.groups.push_back({{0, 1}, {}});
  schedule.programs.resize(2);
  schedule.programs[0].operations.push_back(
      {.kind = OperationKind::kSend, .call = CallKind::kSend, .peer = 1, .bytes = 1e6});
  schedule.programs[1].operations.push_back({.seconds = 2});
  schedule.programs[1].operations.push_back(
      {.kind = OperationKind::kReceive, .call = CallKind::kSend, .peer = 0, .bytes = 1e6});
  schedule.ranks = {{0, 0, {0}}, {1, 1, {0}}};
  return schedule;
}

TEST(Schedules, AMessageBeginsWhenBothSidesHaveCome) {
  const Network network(options_of(Shape::kSwitch, 2));
  for (const Fidelity fidelity : {Fidelity::kCosts, Fidelity::kMessages}) {
    const Timeline timeline = simulate(send_and_receive(), network, fidelity);
    EXPECT_NEAR(timeline.step_seconds, 2 + kLatency + 1e6 / kBandwidth, 1e-9);
    EXPECT_DOUBLE_EQ(timeline.ranks[0][0].begin, 2);
  }
}

void expect_error(const Schedule& schedule, const Network& network, const std::string& part) {
  try {
    simulate(schedule, network);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Schedules, ErrorsNameRanksAndOperations) {
  const Network network(options_of(Shape::kSwitch, 2));
  Schedule schedule = send_and_receive();
  schedule.programs[1].operations.pop_back();
  expect_error(schedule, network, "operation 0 (work) of rank 0 never ends");
  schedule = send_and_receive();
  schedule.programs[1].operations[1].bytes = 5;
  expect_error(schedule, network, "ranks do not agree: operation 1 (work) of rank 1");
  schedule = send_and_receive();
  schedule.programs[1].operations[1].after = {7};
  expect_error(schedule, network, "operation 1 waits for operation 7");
  schedule = send_and_receive();
  schedule.groups[0].ranks[1] = schedule.ranks[1].rank = 4;
  expect_error(schedule, network, "the schedule has rank 4, and the network has 2 ranks");
}

TEST(Reports, TracesAndJsonParse) {
  const Network network(options_of(Shape::kSwitch, 2));
  const Schedule schedule = send_and_receive();
  const Timeline timeline = simulate(schedule, network);
  const auto trace = nlohmann::json::parse(trace_of(schedule, timeline));
  size_t complete = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++complete;
    EXPECT_GE(event.at("ts").get<double>() + event.at("dur").get<double>(), 0);
    EXPECT_LE(event.at("ts").get<double>() + event.at("dur").get<double>(),
              timeline.step_seconds * 1e6 * (1 + 1e-12));
  }
  EXPECT_EQ(complete, 3u);
  const Report report = report_of(schedule, timeline);
  const auto json = nlohmann::json::parse(json_of(report));
  EXPECT_DOUBLE_EQ(json.at("step_s").get<double>(), timeline.step_seconds);
  EXPECT_NEAR(report.compute_s + report.exposed_s + report.idle_s, report.step_s, 1e-12);
  EXPECT_NE(table_of(report).find("overlap"), std::string::npos);
}

}  // namespace
}  // namespace bp::simulate
