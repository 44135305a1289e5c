// Steps of models: memory, bubbles, and one rank for many.
#include "runtime/simulate/steps.hpp"

#include <gtest/gtest.h>

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/report.hpp"
#include "runtime/simulate/stage_program.hpp"
#include "runtime/simulate/sweep.hpp"

namespace bp::simulate {
namespace {

constexpr Gpt kGpt3{
    .layers = 96, .width = 12288, .heads = 96, .context = 2048, .vocabulary = 50257};

NetworkOptions nodes_of_eight(uint32_t nodes) {
  return {.node_count = nodes,
          .ranks_per_node = 8,
          .nics_per_node = 8,
          .node_bandwidth = 450e9,
          .node_latency_s = 3e-6,
          .shape = Shape::kRails,
          .bandwidth = 50e9,
          .latency_s = 5e-6};
}

SimulatedDevice device() {
  return {.flops = 900e12, .efficiency = 0.5, .memory_bandwidth = 3e12, .memory_bytes = 80e9};
}

Job small_job(uint32_t batch) {
  return {.model = {.layers = 8, .width = 1024, .heads = 16, .context = 512, .vocabulary = 1000},
          .device = device(),
          .batch = batch};
}

TEST(Model, Gpt3HasItsParameters) {
  // 174.6e9 in the paper, whose head has no weights of its own.
  EXPECT_NEAR(kGpt3.parameters() - kGpt3.head_parameters(), 174.6e9, 0.1e9);
}

TEST(Model, ActivationsFollowKorthikanti) {
  const Job job{.model = kGpt3, .device = device(), .batch = 64};
  Layout layout{.data = 64, .micro_batch = 1, .recompute = Recompute::kNone};
  const double sbh = 2048.0 * 12288, scores = 96.0 * 2048 * 2048;
  const auto layer = [&] {
    const HalfLayer attention = attention_of(job, layout), mlp = mlp_of(job, layout);
    return attention.kept_bytes + attention.score_bytes + mlp.kept_bytes;
  };
  EXPECT_DOUBLE_EQ(layer(), 34 * sbh + 5 * scores);
  layout.recompute = Recompute::kSelective;
  EXPECT_DOUBLE_EQ(layer(), 34 * sbh);
  layout.tensor = 8;
  EXPECT_DOUBLE_EQ(layer(), (10 + 24.0 / 8) * sbh);
  layout.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(layer(), 34.0 / 8 * sbh);
}

TEST(Model, ShardedStatesFallAsOneByN) {
  for (const uint32_t n : {8U, 64U, 512U, 1024U}) {
    const Job job{.model = kGpt3, .device = device(), .batch = n};
    const double states = kGpt3.parameters() * 16;
    Layout layout{.data = n, .shard_stage = 3};
    MemoryUse use = memory_of(job, layout, 0, 1);
    EXPECT_NEAR((use.parameters + use.gradients + use.optimizer) * n / states, 1, 0.05) << n;
    layout.shard_stage = 1;
    use = memory_of(job, layout, 0, 1);
    EXPECT_DOUBLE_EQ(use.parameters + use.gradients, kGpt3.parameters() * 4);
    EXPECT_DOUBLE_EQ(use.optimizer * n, kGpt3.parameters() * 12);
  }
}

TEST(Model, NumbersThatDoNotDivideAreRefused) {
  const auto expect_refused = [](const Layout& layout, const std::string& part) {
    try {
      check(small_job(16), layout);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  expect_refused({.tensor = 3}, "heads is 16, and tensor is 3; allowed: divisors of it");
  expect_refused({.pipe = 5}, "layers is 8, and pipe * stages-per-rank is 5");
  expect_refused({.data = 3}, "batch is 16, and data * micro-batch is 3");
  expect_refused({.sequence_parallel = true}, "sequence parallelism is on, and tensor is 1");
  expect_refused({.data = 2, .bucket_bytes = 1}, "use larger buckets");
  expect_refused({.shard_stage = 4}, "shard-stage is 4; allowed: 0 to 3");
  expect_refused({.tensor = 0}, "tensor is 0.000000; allowed: above 0");
}

double bytes_of(const Program& program, CallKind kind) {
  double sum = 0;
  for (const Operation& operation : program.operations) {
    if (operation.kind == OperationKind::kCall && operation.call == kind) sum += operation.bytes;
  }
  return sum;
}

// With P bytes of parameters and m micro-batches. Stage 3 gathers layers twice for a micro-batch,
// and the root unit once.
TEST(Steps, CallsMoveTheBytesOfTheirStage) {
  const Job job = small_job(64);
  const Network network(nodes_of_eight(1));
  const double all = 2 * job.model.parameters();
  const double layers = 2 * job.model.layers * job.model.layer_parameters();
  const double m = 4;
  const struct {
    int stage;
    double reduced, gathered, scattered;
  } rows[] = {
      {0, all, 0, 0}, {1, 0, all, all}, {2, 0, all, m * all}, {3, 0, m * (all + layers), m * all}};
  for (const auto& row : rows) {
    const Layout layout{.data = 8, .micro_batch = 2, .shard_stage = row.stage};
    const Schedule schedule = make_step(job, layout, network, Ranks::kRepresentatives);
    const Program& program = schedule.programs[0];
    EXPECT_NEAR(bytes_of(program, CallKind::kAllReduce), row.reduced, 1) << row.stage;
    EXPECT_NEAR(bytes_of(program, CallKind::kAllGather), row.gathered, 1) << row.stage;
    EXPECT_NEAR(bytes_of(program, CallKind::kReduceScatter), row.scattered, 1) << row.stage;
  }
}

// Each layer has two calls in a forward and two in a backward, for each micro-batch.
TEST(Steps, TensorCallsMoveActivations) {
  const Job job = small_job(8);
  const Network network(nodes_of_eight(1));
  const double calls = 4.0 * job.model.layers * 2;
  const double bytes = calls * 4 * job.model.context * job.model.width * 2;
  Layout layout{.tensor = 8, .micro_batch = 4};
  const auto program = [&] {
    return make_step(job, layout, network, Ranks::kRepresentatives).programs[0];
  };
  EXPECT_NEAR(bytes_of(program(), CallKind::kAllReduce), bytes, 1);
  layout.sequence_parallel = true;
  EXPECT_NEAR(bytes_of(program(), CallKind::kReduceScatter), bytes, 1);
  EXPECT_NEAR(bytes_of(program(), CallKind::kAllGather), bytes, 1);
}

// Without embeddings, a head, an optimizer and communication that count.
TEST(Steps, BubblesFollowTheFormula) {
  Job job = small_job(16);
  job.model.layers = 48;
  job.model.context = 8192;
  job.model.vocabulary = 1;
  NetworkOptions options = nodes_of_eight(1);
  options.node_bandwidth = 1e18;
  options.node_latency_s = 0;
  const Network network(options);
  for (const char* pipeline : {"gpipe", "1f1b", "interleaved"}) {
    const uint32_t stages = std::string(pipeline) == "interleaved" ? 2 : 1;
    for (const uint32_t pipe : {1U, 2U, 4U, 8U}) {
      const Layout layout{.pipe = pipe, .pipeline = pipeline, .stages_per_rank = stages};
      const Report report = report_of_step(job, layout, network);
      EXPECT_NEAR(report.bubble(), *report.bubble_formula, 0.01) << pipeline << ' ' << pipe;
      EXPECT_GT(report.bubble(), pipe > 1 ? 0.03 : -0.01);
    }
  }
}

TEST(Steps, ZeroBubbleSchedulesHaveSmallerBubbles) {
  Job job = small_job(16);
  job.model.vocabulary = 1;
  const Network network(nodes_of_eight(1));
  const Report usual = report_of_step(job, {.pipe = 8, .pipeline = "1f1b"}, network);
  const Report zero = report_of_step(job, {.pipe = 8, .pipeline = "zb"}, network);
  EXPECT_LT(zero.bubble(), 0.75 * usual.bubble());
}

double step_seconds(const Job& job, const Layout& layout, const Network& network, Ranks ranks,
                    Fidelity fidelity = Fidelity::kCosts) {
  return simulate(make_step(job, layout, network, ranks), network, fidelity).step_seconds;
}

TEST(Steps, OneRankStandsForAllOfItsStage) {
  const Job job = small_job(64);
  const Network network(nodes_of_eight(4));
  for (const Layout& layout :
       {Layout{.data = 32}, Layout{.data = 32, .shard_stage = 1},
        Layout{.data = 32, .shard_stage = 2}, Layout{.data = 32, .shard_stage = 3},
        Layout{.tensor = 8, .data = 4}, Layout{.tensor = 8, .data = 4, .sequence_parallel = true},
        Layout{.tensor = 4, .data = 4, .pipe = 2}, Layout{.tensor = 8, .pipe = 4},
        Layout{.data = 8, .pipe = 4, .pipeline = "gpipe", .shard_stage = 1}}) {
    const double all = step_seconds(job, layout, network, Ranks::kAll);
    EXPECT_NEAR(step_seconds(job, layout, network, Ranks::kRepresentatives), all, 0.02 * all)
        << text_of(layout);
  }
}

TEST(Steps, CostsAgreeWithAllMessages) {
  const Job job = small_job(16);
  const Network network(nodes_of_eight(2));
  for (const Layout& layout : {Layout{.data = 16}, Layout{.data = 16, .shard_stage = 3},
                               Layout{.tensor = 8, .data = 2, .shard_stage = 1},
                               Layout{.tensor = 4, .data = 2, .pipe = 2}}) {
    const double messages = step_seconds(job, layout, network, Ranks::kAll, Fidelity::kMessages);
    EXPECT_NEAR(step_seconds(job, layout, network, Ranks::kAll), messages, 0.05 * messages)
        << text_of(layout);
  }
}

TEST(Steps, CallsThatAreHiddenCostNothing) {
  Job job = small_job(64);
  job.model.width = 4096;
  const Network network(nodes_of_eight(1));
  const Report report =
      report_of_step(job, {.data = 8, .micro_batch = 8, .shard_stage = 3}, network);
  EXPECT_GT(report.communication_s, 0);
  EXPECT_GT(*report.data_efficiency, 0.9);
  EXPECT_GT(report.overlap(), 0.8);
  EXPECT_DOUBLE_EQ(*report.data_overlap, report.overlap());
  const Report late =
      report_of_step(job, {.data = 8, .micro_batch = 8, .shard_stage = 3, .prefetch = 0}, network);
  EXPECT_LT(late.overlap(), report.overlap());
}

// Stages 1 and 2 gather the embeddings first, so that their forward waits for no other unit.
TEST(Steps, GathersFollowTheOrderOfUse) {
  Job job = small_job(64);
  job.model.width = 4096;
  const Network network(nodes_of_eight(1));
  for (const int stage : {1, 2, 3}) {
    const Layout layout{.data = 8, .micro_batch = 8, .shard_stage = stage};
    EXPECT_GT(report_of_step(job, layout, network).overlap(), 0.8) << stage;
  }
}

TEST(Steps, AStragglerSlowsTheStep) {
  const Job job = small_job(8);
  NetworkOptions options = nodes_of_eight(1);
  const double usual = report_of_step(job, {.data = 8}, Network(options)).step_s;
  options.slow_ranks = {{.rank = 5, .factor = 2}};
  const Report slow = report_of_step(job, {.data = 8}, Network(options));
  EXPECT_EQ(slow.simulated_ranks, 8u);
  EXPECT_GT(slow.step_s, 1.5 * usual);
  EXPECT_GT(slow.idle_s, 0);
}

// The sweep leaves out layouts whose bound is too slow, so no step may be faster than its bound.
TEST(Sweeps, StepsTakeAtLeastTheirBound) {
  Job job = small_job(16);
  job.model.layers = 4;
  const Network network(nodes_of_eight(2));
  Costs costs(network);
  uint32_t count = 0;
  for (const Candidate& each : sweep(job, network, 16, 1000).best) {
    const double least = least_seconds(job, each.layout, costs);
    EXPECT_GT(least, 0.05 * each.report.step_s) << text_of(each.layout);
    EXPECT_LE(least, each.report.step_s) << text_of(each.layout);
    ++count;
  }
  EXPECT_GT(count, 50u);
}

TEST(Sweeps, KeepTheFastestThatFit) {
  Job job = small_job(16);
  job.model.layers = 4;
  const Network network(nodes_of_eight(1));
  const Sweep all = sweep(job, network, 8, 1);
  ASSERT_EQ(all.best.size(), 1u);
  EXPECT_EQ(all.too_large_count, 0u);
  job.device.memory_bytes = all.best[0].report.memory->total() * 0.99;
  const Sweep fitting = sweep(job, network, 8, 3);
  ASSERT_EQ(fitting.best.size(), 3u);
  EXPECT_GT(fitting.too_large_count, 0u);
  EXPECT_EQ(fitting.simulated_count + fitting.too_slow_count + fitting.too_large_count,
            all.simulated_count + all.too_slow_count);
  for (const Candidate& each : fitting.best) {
    EXPECT_LE(each.report.memory->total(), job.device.memory_bytes);
    EXPECT_EQ(each.layout.ranks(), 8u);
    EXPECT_GE(each.report.step_s, all.best[0].report.step_s);
    EXPECT_GE(each.report.step_s, fitting.best[0].report.step_s);
  }
  job.device.memory_bytes = 1;
  EXPECT_THROW(sweep(job, network, 8), Error);
}

}  // namespace
}  // namespace bp::simulate
