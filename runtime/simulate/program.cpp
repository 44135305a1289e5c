// bp-simulate prints what a step of training takes on a simulated network.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "backplane/runtime/error.hpp"
#include "registry/files/whole_file.hpp"
#include "runtime/simulate/model.hpp"
#include "runtime/simulate/recorded.hpp"
#include "runtime/simulate/report.hpp"
#include "runtime/simulate/steps.hpp"
#include "runtime/simulate/sweep.hpp"
#include "simulation/network_file.hpp"

namespace bp::simulate {
namespace {

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
  std::string network, trace, dtype = "bf16", recompute = "selective";
  std::vector<std::string> recorded;
  Job job;
  Layout layout;
  uint32_t node_count = 0, data = 0;
  bool wants_sweep = false, wants_json = false;
  std::vector<CLI::Option*> model_options, layout_options;
  CLI::Option *sweep = nullptr, *prefetch = nullptr, *bucket_bytes = nullptr;
};

void add_model_options(CLI::App& app, Choices& c) {
  Gpt& m = c.job.model;
  c.model_options = {app.add_option("--layers", m.layers, "transformer blocks"),
                     app.add_option("--width", m.width, "of each position"),
                     app.add_option("--heads", m.heads, "of attention"),
                     app.add_option("--context", m.context, "tokens of a sequence"),
                     app.add_option("--vocabulary", m.vocabulary, "tokens that there are"),
                     app.add_option("--batch", c.job.batch, "sequences in a step, of all ranks"),
                     app.add_option("--dtype", c.dtype, "of parameters, gradients and activations")
                         ->check(CLI::IsMember({"bf16", "f16", "f32"}))};
  for (CLI::Option* option : c.model_options) option->capture_default_str();
}

void add_layout_options(CLI::App& app, Choices& c) {
  Layout& l = c.layout;
  c.prefetch = app.add_option("--prefetch", l.prefetch, "units that stage 3 gathers ahead");
  c.bucket_bytes =
      app.add_option("--bucket-bytes", l.bucket_bytes, "of ddp")->check(CLI::Range(1.0, 1e15));
  c.layout_options = {
      app.add_option("--tensor", l.tensor, "tensor-parallel ranks"),
      app.add_option("--pipe", l.pipe, "pipeline-parallel ranks"),
      app.add_option("--micro-batch", l.micro_batch, "sequences of a micro-batch"),
      app.add_option("--pipeline", l.pipeline, "gpipe, 1f1b, interleaved or zb"),
      app.add_option("--stages-per-rank", l.stages_per_rank, "of interleaved"),
      app.add_option("--shard-stage", l.shard_stage,
                     "0: ddp; fsdp shards 1: the state of the optimizer, 2: gradients as well, 3: "
                     "parameters as well"),
      app.add_option("--recompute", c.recompute, "activations that a backward computes again")
          ->check(CLI::IsMember({"none", "selective", "full"})),
      c.prefetch,
      c.bucket_bytes};
  for (CLI::Option* option : c.layout_options) option->capture_default_str();
  c.layout_options.push_back(app.add_option("--data", c.data, "data-parallel ranks (default: rest)")
                                 ->check(CLI::PositiveNumber));
  c.layout_options.push_back(app.add_flag("--sequence-parallel", l.sequence_parallel,
                                          "cut activations between the parts of a layer as well"));
}

void add_options(CLI::App& app, Choices& c) {
  app.add_option("NETWORK", c.network, "the YAML file of the network and the device")->required();
  app.add_option("--nodes", c.node_count, "nodes, in place of those of the file")
      ->check(CLI::PositiveNumber);
  add_model_options(app, c);
  add_layout_options(app, c);
  c.sweep = app.add_flag("--sweep", c.wants_sweep,
                         "try all layouts, and print the ten best that fit the memory");
  app.add_option("--recorded", c.recorded, "the recorded steps of all ranks, in their order")
      ->type_name("FILE");
  app.add_option("--trace", c.trace, "write a trace of the step for Perfetto")->type_name("FILE");
  app.add_flag("--json", c.wants_json, "print JSON");
}

// Refuses options that would have no effect.
void check_options(const Choices& c) {
  const auto refuse = [](const char* name, const std::vector<CLI::Option*>& options) {
    for (const CLI::Option* option : options) {
      if (option->count() > 0) throw CLI::ExcludesError(name, option->get_name());
    }
  };
  if (c.wants_sweep) {
    refuse("--sweep", c.layout_options);
    if (!c.trace.empty()) throw CLI::ExcludesError("--sweep", "--trace");
  }
  if (!c.recorded.empty()) {
    refuse("--recorded", c.model_options);
    refuse("--recorded", c.layout_options);
    refuse("--recorded", {c.sweep});
  }
  if (c.bucket_bytes->count() > 0 && c.layout.shard_stage != 0) {
    throw CLI::ValidationError("--bucket-bytes", "is for --shard-stage 0 alone");
  }
  if (c.prefetch->count() > 0 && c.layout.shard_stage != 3) {
    throw CLI::ValidationError("--prefetch", "is for --shard-stage 3 alone");
  }
}

Recompute recompute_of(const std::string& name) {
  if (name == "none") return Recompute::kNone;
  return name == "full" ? Recompute::kFull : Recompute::kSelective;
}

void write_trace(const Choices& c, const Schedule& schedule, const Timeline& timeline) {
  if (c.trace.empty()) return;
  WholeFile file(c.trace, /*is_durable=*/false);
  file.write(trace_of(schedule, timeline));
  if (const std::string problem = file.commit(); !problem.empty()) {
    throw Error(BP_INVALID_ARGUMENT, problem);
  }
}

// Replays all recorded steps but the first one, which warms up, and reports their mean.
void run_recorded(const Choices& c, const Cluster& cluster) {
  std::vector<RecordedRank> ranks;
  for (const std::string& path : c.recorded) ranks.push_back(read_recorded(path));
  const size_t first = ranks[0].steps.size() > 1 ? 1 : 0, count = ranks[0].steps.size() - first;
  const Schedule schedule = schedule_of(ranks, first);
  const Timeline timeline = simulate(schedule, cluster.network);
  write_trace(c, schedule, timeline);
  Report report = report_of(schedule, timeline);
  report.calls = calls_of(schedule, timeline);
  for (CallSum& sum : report.calls) {
    sum.count /= static_cast<double>(count);
    sum.bytes /= static_cast<double>(count);
  }
  report.measured_s = measured_seconds(ranks, first);
  for (double* seconds : {&report.step_s, &report.compute_s, &report.communication_s,
                          &report.exposed_s, &report.idle_s, &*report.measured_s}) {
    *seconds /= static_cast<double>(count);
  }
  if (!c.wants_json) std::printf("the mean of %zu recorded steps\n", count);
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
    throw Error(BP_INVALID_ARGUMENT, "--tensor, --data and --pipe multiply to " +
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
  c.job.element_bytes = c.dtype == "f32" ? 4 : 2;
  c.layout.recompute = recompute_of(c.recompute);
  if (!c.recorded.empty()) return run_recorded(c, cluster);
  if (cluster.device.flops <= 0 || cluster.device.memory_bandwidth <= 0) {
    throw Error(BP_INVALID_ARGUMENT, c.network +
                                         ":1: a step of a model needs device.flops and "
                                         "device.memory_bandwidth");
  }
  run_model(c, cluster);
}

int run_program(int argc, char** argv) {
  Choices choices;
  CLI::App app("Simulates a step of training on a network.", "bp-simulate");
  app.footer(kFooter);
  try {
    add_options(app, choices);
    app.parse(argc, argv);
    check_options(choices);
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

}  // namespace
}  // namespace bp::simulate

int main(int argc, char** argv) { return bp::simulate::run_program(argc, argv); }
