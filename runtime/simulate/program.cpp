// bp-simulate prints what a step of training takes on a simulated network.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "registry/files/whole_file.hpp"
#include "runtime/simulate/network_file.hpp"
#include "runtime/simulate/recorded.hpp"
#include "runtime/simulate/report.hpp"
#include "runtime/simulate/steps.hpp"
#include "runtime/simulate/sweep.hpp"

namespace {

using namespace bp::simulate;

constexpr int kUsageExit = 2;

constexpr const char* kFooter =
    R"(NETWORK is a YAML file: runtime/simulate/README.md describes it, and has examples. --tensor,
--data and --pipe multiply to the ranks of the network; --data follows from the others if it is not
given.

  bp-simulate cluster.yaml --layers 96 --width 12288 --heads 96 --context 2048 --batch 1536 \
    --tensor 8 --pipe 8                     one layout
  bp-simulate cluster.yaml ... --sweep      the ten best layouts that fit the memory
  bp-simulate cluster.yaml --recorded step.jsonl.0 step.jsonl.1
                                            a recorded step on this network
Exit codes: 0, or 1 if something cannot be simulated, or 2 if the command line is wrong.)";

struct Choices {
  std::string network, trace;
  std::vector<std::string> recorded;
  Job job;
  Layout layout;
  uint32_t node_count = 0, data = 0;
  bool wants_sweep = false, wants_json = false;
};

template <class Value>
CLI::Option* add_choice(CLI::App& app, const char* name, Value& value, const char* help,
                        const std::map<std::string, Value>& choices) {
  return app.add_option(name, value, help)->transform(CLI::CheckedTransformer(choices));
}

void add_options(CLI::App& app, Choices& c) {
  app.add_option("NETWORK", c.network, "the YAML file of the network and the device")->required();
  app.add_option("--nodes", c.node_count, "nodes, in place of those of the file")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", c.job.model.layers, "transformer blocks")->capture_default_str();
  app.add_option("--width", c.job.model.width, "of each position")->capture_default_str();
  app.add_option("--heads", c.job.model.heads, "of attention")->capture_default_str();
  app.add_option("--context", c.job.model.context, "tokens of a sequence")->capture_default_str();
  app.add_option("--vocabulary", c.job.model.vocabulary, "tokens that there are")
      ->capture_default_str();
  app.add_option("--batch", c.job.batch, "sequences in a step, of all ranks")
      ->capture_default_str();
  add_choice<uint32_t>(app, "--dtype", c.job.element_bytes, "bf16, f16 or f32 (default: bf16)",
                       {{"bf16", 2}, {"f16", 2}, {"f32", 4}});
  app.add_option("--tensor", c.layout.tensor, "tensor-parallel ranks")->capture_default_str();
  app.add_option("--pipe", c.layout.pipe, "pipeline-parallel ranks")->capture_default_str();
  app.add_option("--data", c.data, "data-parallel ranks (default: the rest)")
      ->check(CLI::PositiveNumber);
  app.add_option("--micro-batch", c.layout.micro_batch, "sequences of a micro-batch")
      ->capture_default_str();
  app.add_option("--pipeline", c.layout.pipeline, "gpipe, 1f1b, interleaved or zb")
      ->capture_default_str();
  app.add_option("--stages-per-rank", c.layout.stages_per_rank, "of interleaved")
      ->capture_default_str();
  app.add_option("--shard-stage", c.layout.shard_stage,
                 "0: ddp; fsdp shards 1: the state of the optimizer, 2: gradients as well, 3: "
                 "parameters as well")
      ->capture_default_str();
  app.add_option("--prefetch", c.layout.prefetch, "units that stage 3 gathers ahead")
      ->capture_default_str();
  app.add_option("--bucket-bytes", c.layout.bucket_bytes, "of ddp")
      ->check(CLI::Range(1.0, 1e15))
      ->capture_default_str();
  app.add_flag("--sequence-parallel", c.layout.sequence_parallel,
               "cut activations between the parts of a layer as well");
  add_choice<Recompute>(app, "--recompute", c.layout.recompute,
                        "none, selective or full (default: selective)",
                        {{"none", Recompute::kNone},
                         {"selective", Recompute::kSelective},
                         {"full", Recompute::kFull}});
  app.add_flag("--sweep", c.wants_sweep, "try all layouts that fit the memory");
  app.add_option("--recorded", c.recorded, "the recorded steps of all ranks, in their order");
  app.add_option("--trace", c.trace, "write a trace of the step for Perfetto")->type_name("FILE");
  app.add_flag("--json", c.wants_json, "print JSON");
}

void write_trace(const Choices& c, const Schedule& schedule, const Timeline& timeline) {
  if (c.trace.empty()) return;
  bp::WholeFile file(c.trace, /*is_durable=*/false);
  file.write(trace_of(schedule, timeline));
  if (const std::string problem = file.commit(); !problem.empty()) {
    throw bp::Error(BP_INVALID_ARGUMENT, problem);
  }
}

// Returns the step that takes the middle of the times of all recorded ones.
void run_recorded(const Choices& c, const Cluster& cluster) {
  std::vector<RecordedRank> ranks;
  for (const std::string& path : c.recorded) ranks.push_back(read_recorded(path));
  std::vector<std::pair<double, size_t>> times;
  for (size_t step = 0; step < ranks[0].steps.size(); ++step) {
    times.emplace_back(simulate(schedule_of(ranks, step), cluster.network).step_seconds, step);
  }
  std::ranges::sort(times);
  const Schedule schedule = schedule_of(ranks, times[times.size() / 2].second);
  const Timeline timeline = simulate(schedule, cluster.network);
  write_trace(c, schedule, timeline);
  const Report report = report_of(schedule, timeline);
  if (!c.wants_json) {
    std::printf("step %zu of %zu recorded ones, which takes the median time\n",
                times[times.size() / 2].second + 1, times.size());
  }
  std::fputs((c.wants_json ? json_of(report) : table_of(report)).c_str(), stdout);
}

void run_model(Choices& c, const Cluster& cluster) {
  const uint32_t ranks = cluster.network.rank_count();
  if (c.wants_sweep) {
    const Sweep found = sweep(c.job, cluster.network, ranks);
    std::fputs((c.wants_json ? json_of(found) : table_of(found)).c_str(), stdout);
    return;
  }
  const uint32_t others = std::max(c.layout.tensor * c.layout.pipe, 1U);
  c.layout.data = c.data > 0 ? c.data : std::max(ranks / others, 1U);
  if (c.layout.ranks() != ranks) {
    throw bp::Error(BP_INVALID_ARGUMENT, "--tensor, --data and --pipe multiply to " +
                                             std::to_string(c.layout.ranks()) +
                                             ", and the network has " + std::to_string(ranks) +
                                             " ranks; they must be equal");
  }
  Schedule schedule;
  Timeline timeline;
  const Report report = report_of_step(c.job, c.layout, cluster.network, &schedule, &timeline);
  write_trace(c, schedule, timeline);
  std::fputs((c.wants_json ? json_of(report) : table_of(report)).c_str(), stdout);
  const double memory = c.job.device.memory_bytes;
  if (memory > 0 && report.memory->total() > memory) {
    std::fprintf(stderr, "bp-simulate: a rank needs %s, and a device has %s\n",
                 bytes_text(report.memory->total()).c_str(), bytes_text(memory).c_str());
  }
}

void run(Choices& c) {
  std::optional<uint32_t> nodes;
  if (c.node_count > 0) nodes = c.node_count;
  const Cluster cluster = read_cluster(c.network, nodes);
  c.job.device = cluster.device;
  if (!c.recorded.empty()) return run_recorded(c, cluster);
  if (cluster.device.flops <= 0 || cluster.device.memory_bandwidth <= 0) {
    throw bp::Error(BP_INVALID_ARGUMENT, c.network +
                                             ":1: a step of a model needs device.flops and "
                                             "device.memory_bandwidth");
  }
  run_model(c, cluster);
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app("Simulates a step of training on a network.", "bp-simulate");
  app.footer(kFooter);
  try {
    add_options(app, choices);
    app.parse(argc, argv);
    if (choices.wants_sweep && (!choices.trace.empty() || !choices.recorded.empty())) {
      throw CLI::ExcludesError("--sweep", choices.trace.empty() ? "--recorded" : "--trace");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  }
  try {
    run(choices);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bp-simulate: %s\n", error.what());
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
