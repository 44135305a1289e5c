#include "runtime/simulate/sweep.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/steps.hpp"

namespace bp::simulate {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Recompute recompute) {
  if (recompute == Recompute::kNone) return "none";
  return recompute == Recompute::kSelective ? "selective" : "full";
}

// Whether the numbers of the layout divide those of the job.
bool is_possible(const Job& job, const Layout& layout) {
  if (job.model.heads % layout.tensor != 0) return false;
  if (job.model.layers % (layout.pipe * layout.stages_per_rank) != 0) return false;
  if (job.batch % (layout.data * layout.micro_batch) != 0) return false;
  return layout.stages_per_rank == 1 || micro_batches_of(job, layout) % layout.pipe == 0;
}

// Calls `take` with all ways to run the job on a grid of ranks.
template <class Take>
void for_each_way(Layout layout, const Take& take) {
  for (const uint32_t stages : {1U, 2U, 4U}) {
    if (stages > 1 && layout.pipe == 1) continue;
    layout.stages_per_rank = stages;
    layout.pipeline = stages > 1 ? "interleaved" : "1f1b";
    for (const int shard_stage : {1, 3}) {
      if (shard_stage == 3 && (layout.pipe > 1 || layout.data == 1)) continue;
      layout.shard_stage = shard_stage;
      for (const uint32_t micro_batch : {1U, 2U, 4U, 8U}) {
        layout.micro_batch = micro_batch;
        for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
          layout.recompute = recompute;
          take(layout);
        }
      }
    }
  }
}

template <class Take>
void for_each_layout(const Network& network, uint32_t ranks, const Take& take) {
  for (uint32_t tensor = 1; tensor <= network.options().ranks_per_node; ++tensor) {
    if (ranks % tensor != 0 || network.options().ranks_per_node % tensor != 0) continue;
    for (uint32_t pipe = 1; pipe <= ranks / tensor; ++pipe) {
      if (ranks / tensor % pipe != 0) continue;
      Layout layout{.tensor = tensor, .data = ranks / tensor / pipe, .pipe = pipe};
      layout.sequence_parallel = tensor > 1;
      for_each_way(layout, take);
    }
  }
}

struct Possible {
  double least_s;
  Layout layout;
};

// Returns the layouts that fit, those that may be fastest first.
std::vector<Possible> fitting_layouts(const Job& job, const Network& network, uint32_t ranks,
                                      Sweep& result) {
  std::vector<Possible> fitting;
  Costs costs(network);
  for_each_layout(network, ranks, [&](const Layout& layout) {
    if (!is_possible(job, layout)) return;
    const double memory = job.device.memory_bytes;
    if (memory > 0 && largest_memory(job, layout).total() > memory) {
      ++result.too_large_count;
    } else {
      fitting.push_back({least_seconds(job, layout, costs), layout});
    }
  });
  std::ranges::stable_sort(fitting, {}, &Possible::least_s);
  if (!fitting.empty()) return fitting;
  throw Error(BP_INVALID_ARGUMENT,
              "sweep: no layout of " + std::to_string(ranks) +
                  " ranks is possible: " + std::to_string(result.too_large_count) +
                  " need more than memory_bytes of the device, and the numbers of all others do "
                  "not divide layers, heads or batch");
}

}  // namespace

double least_seconds(const Job& job, const Layout& layout, Costs& costs) {
  const double computing = seconds_of(attention_of(job, layout), job.device) +
                           seconds_of(mlp_of(job, layout), job.device);
  double forward = computing;
  if (layout.tensor > 1) {
    Group group;
    for (uint32_t rank = 0; rank < layout.tensor; ++rank) group.ranks.push_back(rank);
    const double bytes =
        double{1} * layout.micro_batch * job.model.context * job.model.width * job.element_bytes;
    const auto seconds = [&](CallKind kind) { return costs.cost({kind, bytes}, group).seconds(); };
    forward += 2 * (layout.sequence_parallel
                        ? seconds(CallKind::kAllGather) + seconds(CallKind::kReduceScatter)
                        : seconds(CallKind::kAllReduce));
  }
  double of_layer = forward + 2 * computing + score_seconds(job, layout);
  if (layout.recompute == Recompute::kFull) of_layer += forward;
  const uint32_t layers = job.model.layers / layout.pipe, m = micro_batches_of(job, layout);
  return (m + (layout.pipe - 1.0) / layout.stages_per_rank) * of_layer * layers;
}

Sweep sweep(const Job& job, const Network& network, uint32_t ranks, size_t keep) {
  Sweep result;
  const Ranks which = ranks_for(network);
  for (const Possible& possible : fitting_layouts(job, network, ranks, result)) {
    if (result.best.size() == keep && possible.least_s >= result.best.back().report.step_s) {
      ++result.too_slow_count;
      continue;
    }
    ++result.simulated_count;
    Candidate candidate{.layout = possible.layout};
    candidate.report.step_s =
        simulate(make_step(job, possible.layout, network, which), network).step_seconds;
    result.best.push_back(std::move(candidate));
    std::ranges::stable_sort(result.best, {}, [](const Candidate& c) { return c.report.step_s; });
    if (result.best.size() > keep) result.best.pop_back();
  }
  for (Candidate& each : result.best) each.report = report_of_step(job, each.layout, network);
  return result;
}

std::string text_of(const Layout& l) {
  std::string text = "tensor " + std::to_string(l.tensor) + ", data " + std::to_string(l.data) +
                     ", pipe " + std::to_string(l.pipe);
  if (l.pipe > 1) {
    text += " (" + l.pipeline;
    if (l.stages_per_rank > 1) text += ", " + std::to_string(l.stages_per_rank) + " stages each";
    text += ")";
  }
  text += ", micro-batch " + std::to_string(l.micro_batch) + ", shard stage " +
          std::to_string(l.shard_stage) + ", recompute " + name_of(l.recompute);
  return text;
}

std::string table_of(const Sweep& of) {
  std::string table = std::to_string(of.simulated_count) + " layouts were simulated, " +
                      std::to_string(of.too_slow_count) + " cannot be among the best, and " +
                      std::to_string(of.too_large_count) + " need too much memory\n";
  char line[96];
  std::snprintf(line, sizeof(line), "%12s %9s %9s %9s %11s  %s\n", "step", "use", "overlap",
                "bubble", "memory", "layout");
  table += line;
  for (const Candidate& each : of.best) {
    const Report& r = each.report;
    std::snprintf(line, sizeof(line), "%12s %7.1f %% %7.1f %% %7.1f %% %11s  ",
                  seconds_text(r.step_s).c_str(), r.utilization.value_or(0) * 100,
                  r.overlap() * 100, r.bubble() * 100,
                  bytes_text(r.memory.value_or(MemoryUse{}).total()).c_str());
    table += line + text_of(each.layout) + "\n";
  }
  return table;
}

std::string json_of(const Sweep& of) {
  Json best = Json::array();
  for (const Candidate& each : of.best) {
    const Layout& l = each.layout;
    Json layout{{"tensor", l.tensor},
                {"data", l.data},
                {"pipe", l.pipe},
                {"pipeline", l.pipeline},
                {"stages_per_rank", l.stages_per_rank},
                {"micro_batch", l.micro_batch},
                {"shard_stage", l.shard_stage},
                {"sequence_parallel", l.sequence_parallel},
                {"recompute", name_of(l.recompute)}};
    best.push_back({{"layout", std::move(layout)}, {"report", Json::parse(json_of(each.report))}});
  }
  return Json{{"simulated", of.simulated_count},
              {"too_slow", of.too_slow_count},
              {"too_large", of.too_large_count},
              {"best", std::move(best)}}
             .dump(2) +
         "\n";
}

}  // namespace bp::simulate
